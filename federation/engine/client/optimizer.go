package client

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// sharedOptimizer is one optimizer that passes from client to client, as in the public code of FedOTP, FedPGP and
// pFedMoAP: its state of a parameter after one client's steps is the state before the next client's. A parameter is
// identified by its name and its shape, so clients whose private prompts have other lengths have states of their own,
// which start at zero.
//
// With a nil one, every turn starts with a fresh optimizer.
type sharedOptimizer struct {
	state tensor.Map // SHAPE/SLOT/NAME
}

func (s *sharedOptimizer) load(optimizer *optim.Optimizer, params tensor.Map) error {
	if s == nil {
		return nil
	}

	state := tensor.Map{}
	for name, p := range params {
		at := shapeOf(p)
		for _, slot := range optimizer.Slots() {
			if t := s.state[at+slot+name]; t != nil {
				state[slot+name] = t
			}
		}
	}

	return optimizer.Load(state)
}

// OptimizerState returns the state of the optimizer that all clients share; nil where each turn has its own.
func (w *Worker) OptimizerState() tensor.Map {
	if w.shared == nil {
		return nil
	}
	return w.shared.state
}

// RestoreOptimizer replaces the state of the shared optimizer by that of OptimizerState, such as the one of a
// checkpoint. It does nothing where every turn starts with a fresh optimizer.
func (w *Worker) RestoreOptimizer(state tensor.Map) {
	if w.shared != nil {
		w.shared.state = state
	}
}

// keep saves the state of some parameters after an optimizer's steps.
func (s *sharedOptimizer) keep(o *optim.Optimizer, params tensor.Map) {
	if s == nil {
		return
	}

	state := o.State()
	for name, p := range params {
		for _, slot := range o.Slots() {
			if t := state[slot+name]; t != nil {
				s.state[shapeOf(p)+slot+name] = t
			}
		}
	}
}

func shapeOf(t *tensor.Tensor) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape), " ", "x"), "[]") + "/"
}

// Fit implements method.Global.Optimize: steps of a fresh optimizer on all rows at once. A run resumes from the weights
// alone.
func (w *Worker) Fit(ctx context.Context, task method.ClientSpec, params, rows tensor.Map,
	loss func(*method.Scope) graph.Node, steps int, config optim.Config) (float64, error) {
	opt, err := optim.New(config)
	if err != nil {
		return 0, err
	}

	declared := convert.Slice(params.Names(), func(name string) method.Param {
		return method.Param{Name: name, Shape: params[name].Shape}
	})

	scope := method.NewScope(task, declared)
	plan, err := w.compiler.gradients(ctx, ServerProgram, nil, scope, []lossNode{{node: loss(scope)}})
	if err != nil {
		return 0, err
	}

	in := inputs{local: &method.Local{Broadcast: rows}, now: params, held: ort.Values{}}
	for step := 0; ; step++ {
		outs, err := plan.execute(ctx, in)
		if err != nil {
			return 0, err
		}

		if step == steps {
			value := outs[0][plan.losses[0].value()]
			return float64(value.Data[0]), message.CheckFinite("", tensor.Map{"loss": value})
		}

		grads, err := plan.gradients(in, outs[0], plan.losses[0])
		if err != nil {
			return 0, err
		}

		if err := opt.Step(params, grads, config.LR); err != nil {
			return 0, err
		}
	}
}

// Compute implements method.Global.Compute.
func (w *Worker) Compute(ctx context.Context, task method.ClientSpec, rows tensor.Map,
	build func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
	scope := method.NewScope(task, nil)
	n := build(scope)
	if err := scope.Graph().Err(); err != nil {
		return nil, err
	}

	p, err := w.compiler.compile(ServerProgram, nil, scope, valueOf(n))
	if err != nil {
		return nil, err
	}

	out, err := (&plan{program: p}).execute(ctx, inputs{local: &method.Local{Broadcast: rows},
		held: ort.Values{}})
	if err != nil {
		return nil, err
	}

	return out[0][valueOutput], nil
}
