package personal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/tensor"
)

// Check reports names that the base method does not share, a split that leaves nothing to share, and a base method
// whose server needs more than the mean. The wrapper changes the owners of the base method's parameters, and so comes
// right after it, before all other wrappers.
func (m FedPer) Check() error {
	err := besideBase(m.Method, "changes the owners of")
	properties := method.PropertiesOf(m.Method)
	if err == nil && properties.Mean == "" {
		err = errors.New("the base method's server needs more than the mean of uploads; choose another base method")
	}

	if _, has := properties.Roles[method.RoundStart]; err == nil && has {
		err = fmt.Errorf("the shared parameters of the base method %s, and have to be sent; choose another base method",
			method.RoundStart)
	}

	if err != nil {
		return err
	}

	return m.matches(m.Method.Params(layer.PlaceholderClient))
}

// besideBase returns an error unless inner is a base method. does is what the wrapper does with its parameters.
func besideBase(inner method.Method, does string) error {
	if method.Unwrap(inner) != nil {
		return fmt.Errorf("it %s the base method's parameters; list it before %s, or choose a base method without it",
			does, layer.NameOf(inner))
	}
	return nil
}

// matches reports names of parameters that do not exist, and a split that leaves nothing to share.
func (m FedPer) matches(params []method.Param) error {
	if m.none() {
		return nil
	}

	shared := method.SharedNames(params)
	for _, at := range m.Private {
		if !slices.ContainsFunc(shared, func(name string) bool { return under(name, at) }) {
			return check.OptionErrorf("private", " names %.60q; the base method shares %s", at, layer.Enumerate(shared))
		}
	}

	switch left := slices.DeleteFunc(slices.Clone(shared), m.keeps); {
	case len(shared) == 0:
		return errors.New("the base method shares nothing; remove it")
	case len(m.Private) == 0:
		return check.OptionErrorf("private", " is empty; name what stays on clients, some of %s",
			layer.Enumerate(shared))
	case len(left) == 0:
		return check.OptionErrorf("private", " leaves nothing of %s to share; keep a part shared, or use a base "+
			"method that trains each client alone", layer.Enumerate(shared))
	}

	return nil
}

func (m FedPer) none() bool { return len(m.Private) == 1 && m.Private[0] == "none" }

// keeps reports whether a shared parameter becomes private.
func (m FedPer) keeps(name string) bool {
	return slices.ContainsFunc(m.Private, func(at string) bool { return under(name, at) })
}

func under(name, at string) bool { return name == at || strings.HasPrefix(name, at+"/") }

// Params are the base method's, those that option private names with the owner private. These start from the same
// values on every client, those that the server would have sent.
func (m FedPer) Params(t method.ClientSpec) []method.Param {
	out := slices.Clone(m.Method.Params(t))
	for i, p := range out {
		if p.Owner == method.Shared && m.keeps(p.Name) {
			out[i].Owner = method.Private
			out[i].Init = firstOf(m.Method, t, p.Name)
		}
	}

	return out
}

// firstOf returns the initial value that the server of a base method without wrappers gives a shared parameter.
func firstOf(base method.Method, t method.ClientSpec, name string) func(uint64) *tensor.Tensor {
	return func(seed uint64) *tensor.Tensor {
		g := method.Global{Seed: seed, Task: t, Width: t.Width, Classes: t.Classes, Clients: t.Clients,
			Broadcast: tensor.Map{}, PerClient: map[int]tensor.Map{}, State: tensor.Map{}}
		startAll(base, &g) // the server met its error, if there is one, before round 0
		return g.Shared[name]
	}
}

// startAll starts a base method with all parameters that it shares without wrappers.
func startAll(base method.Method, global *method.Global) error {
	shared := maps.Clone(global.Shared)
	if shared == nil {
		shared = tensor.Map{}
	}

	for _, p := range base.Params(global.Task) {
		if p.Owner == method.Shared && shared[p.Name] == nil {
			shared[p.Name] = p.Initial(global.Seed, -1)
		}
	}

	global.Shared = shared
	return base.Start(global)
}

// Start starts the base method with all of its parameters, so that draws are those of a run without the wrapper, and
// takes the private ones from the server.
func (m FedPer) Start(global *method.Global) error {
	if err := m.matches(m.Method.Params(global.Task)); err != nil {
		return err
	}
	err := startAll(m.Method, global)
	maps.DeleteFunc(global.Shared, func(name string, _ *tensor.Tensor) bool { return m.keeps(name) })
	return err
}
