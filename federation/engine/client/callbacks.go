package client

import (
	"fmt"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// callbackValues holds the values of host functions during one client's turn.
type callbackValues map[string]callbackValue

type callbackValue struct {
	epoch int
	value *tensor.Tensor
	args  []*tensor.Tensor // of the latest Forward call; nil where an older value is used again
}

// computeHosts computes the values of a program's host functions, unless they are there.
func (f *inputs) computeHosts(p *program) error {
	if f.hosts != nil {
		return nil
	}
	f.hosts = tensor.Map{}
	for _, call := range p.hosts {
		at := method.HostInput + "/" + call.Name
		old, done := f.hostValues[call.Name]
		if done && (call.Func.Every == method.EveryRound || call.Func.Every == method.EveryEpoch &&
			old.epoch == f.epoch) {
			old.args = nil
			f.hostValues[call.Name], f.hosts[at] = old, old.value
			continue
		}
		args := make([]*tensor.Tensor, len(call.Of))
		for i, name := range call.Of {
			if args[i] = f.find(name); args[i] == nil {
				return fmt.Errorf("%s needs %s, which is not available here", call.Name, name)
			}
		}
		v, err := call.Func.Forward(args...)
		if err != nil {
			return fmt.Errorf("%s: %w; %s", call.Name, err, message.DivergenceHint)
		}
		f.hosts[at] = v
		if f.hostValues != nil {
			f.hostValues[call.Name] = callbackValue{f.epoch, v, args}
		}
	}
	return nil
}

// draws returns the values of host functions that a trace records, by name.
func (p *program) draws(hosts tensor.Map) tensor.Map {
	out := tensor.Map{}
	for _, h := range p.hosts {
		if h.Func.Trace != nil && !strings.Contains(h.Name, "/") {
			out[h.Name] = h.Func.Trace(hosts[method.HostInput+"/"+h.Name])
		}
	}
	return out
}

// gradients returns the gradient of every parameter that a loss depends on: the outputs of the graph under the given
// name, and the part that reaches parameters through host functions that this step computed anew. An older value is a
// constant.
func gradients(p *program, in inputs, out tensor.Map, at string) (tensor.Map, error) {
	grads := tensor.Map{}
	for _, name := range p.params {
		if param, ok := strings.CutPrefix(name, method.ParamInput+"/"); ok && out[at+name] != nil {
			grads[param] = out[at+name]
		}
	}
	for _, call := range p.hosts {
		dy := out[at+method.HostInput+"/"+call.Name]
		if call.Func.VJP == nil || dy == nil {
			continue
		}
		var dx []*tensor.Tensor
		if args := in.hostValues[call.Name].args; args != nil {
			var err error
			if dx, err = call.Func.VJP(dy, args...); err != nil {
				return nil, fmt.Errorf("gradient of %s: %w", call.Name, err)
			}
			if len(dx) != len(args) {
				return nil, fmt.Errorf("gradient of %s: %d gradients for %d arguments", call.Name, len(dx), len(args))
			}
		}
		for i, name := range call.Of {
			param, ok := strings.CutPrefix(name, method.ParamInput+"/")
			if !ok {
				continue
			}
			if grads[param] == nil {
				grads[param] = tensor.New(in.now[param].Shape...)
			}
			if dx != nil && dx[i] != nil {
				grads[param].Axpy(1, dx[i])
			}
		}
	}
	return grads, nil
}
