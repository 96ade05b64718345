package engine

import (
	"fmt"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// hosts holds the values of host functions during one client's turn.
type hosts map[string]hostValue

type hostValue struct {
	epoch int
	value *tensor.Tensor
}

// compute adds the values of a program's host functions to its inputs.
func (h hosts) compute(p *program, feed, now tensor.Map, l *method.Local, epoch int) error {
	for _, call := range p.hosts {
		old, done := h[call.Name]
		if done && (call.Func.Every == method.EveryRound || call.Func.Every == method.EveryEpoch && old.epoch == epoch) {
			feed[method.HostInput+"/"+call.Name] = old.value
			continue
		}
		args, err := arguments(call, now, l)
		if err != nil {
			return err
		}
		v, err := call.Func.Forward(args...)
		if err != nil {
			return fmt.Errorf("%s in round %d: %w", call.Name, l.Round, err)
		}
		h[call.Name] = hostValue{epoch, v}
		feed[method.HostInput+"/"+call.Name] = v
	}
	return nil
}

func arguments(call method.HostCall, now tensor.Map, l *method.Local) ([]*tensor.Tensor, error) {
	var args []*tensor.Tensor
	for _, in := range call.Of {
		kind, name, _ := strings.Cut(in, "/")
		t := now[name]
		if kind != method.ParamInput {
			t = l.Received[name]
		}
		if t == nil {
			return nil, fmt.Errorf("%s needs %s, which nothing provides", call.Name, in)
		}
		args = append(args, t)
	}
	return args, nil
}

// gradients gives the gradient of every parameter: what the graph computed, and what reaches it through host functions.
func gradients(p *program, l *method.Local, out, feed tensor.Map) (tensor.Map, error) {
	grads := tensor.Map{}
	for _, in := range p.params {
		if name, ok := strings.CutPrefix(in, method.ParamInput+"/"); ok {
			grads[name] = out[gradOutput+in]
		}
	}
	now := both(l)
	for _, call := range p.hosts {
		dy := out[gradOutput+method.HostInput+"/"+call.Name]
		if call.Func.VJP == nil || dy == nil {
			continue
		}
		args, err := arguments(call, now, l)
		if err != nil {
			return nil, err
		}
		dx, err := call.Func.VJP(dy, args...)
		if err != nil {
			return nil, fmt.Errorf("gradient of %s in round %d: %w", call.Name, l.Round, err)
		}
		for i, in := range call.Of {
			if name, ok := strings.CutPrefix(in, method.ParamInput+"/"); ok && dx[i] != nil {
				grads.Axpy(1, tensor.Map{name: dx[i]})
			}
		}
	}
	return grads, nil
}
