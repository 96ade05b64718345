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

// Split is the option of which shared parameters of a base method become private.
type Split struct {
	Private []string `config:"private"`
}

// LongHelp implements configtags.LongHelp.
func (Split) LongHelp() map[string]string {
	return map[string]string{"private": "shared parameters that stay on their clients, by name or by the part of the " +
		"name before a slash; none: all are shared, which is FedAvg"}
}

// check reports names that do not suit a base method.
func (s Split) check(base method.Method) error {
	err := besideBase(base, "changes the owners of")
	properties := method.PropertiesOf(base)
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

	return s.matches(base.Params(layer.PlaceholderClient))
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
func (s Split) matches(params []method.Param) error {
	if s.none() {
		return nil
	}

	shared := method.SharedNames(params)
	for _, at := range s.Private {
		if !slices.ContainsFunc(shared, func(name string) bool { return under(name, at) }) {
			return check.OptionErrorf("private", " names %.60q; the base method shares %s", at, layer.Enumerate(shared))
		}
	}

	switch left := slices.DeleteFunc(slices.Clone(shared), s.keeps); {
	case len(shared) == 0:
		return errors.New("the base method shares nothing; remove it")
	case len(s.Private) == 0:
		return check.OptionErrorf("private", " is empty; name what stays on clients, some of %s",
			layer.Enumerate(shared))
	case len(left) == 0:
		return check.OptionErrorf("private", " leaves nothing of %s to share; keep a part shared, or use a base "+
			"method that trains each client alone", layer.Enumerate(shared))
	}

	return nil
}

func (s Split) none() bool { return len(s.Private) == 1 && s.Private[0] == "none" }

// keeps reports whether a shared parameter becomes private.
func (s Split) keeps(name string) bool {
	return slices.ContainsFunc(s.Private, func(at string) bool { return under(name, at) })
}

func under(name, at string) bool { return name == at || strings.HasPrefix(name, at+"/") }

// params returns a base method's parameters with their new owners.
func (s Split) params(base method.Method, t method.ClientSpec) []method.Param {
	out := slices.Clone(base.Params(t))
	for i, p := range out {
		if p.Owner == method.Shared && s.keeps(p.Name) {
			out[i].Owner = method.Private
			out[i].Init = firstOf(base, t, p.Name)
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

// start starts a base method and removes the private parameters from the server.
func (s Split) start(base method.Method, global *method.Global) error {
	if err := s.matches(base.Params(global.Task)); err != nil {
		return err
	}
	err := startAll(base, global)
	maps.DeleteFunc(global.Shared, func(name string, _ *tensor.Tensor) bool { return s.keeps(name) })
	return err
}
