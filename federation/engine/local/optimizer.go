package local

import (
	"fmt"
	"strings"

	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// sharedOptimizer is one optimizer object that goes from client to client, as in the public code of FedOTP, FedPGP and
// pFedMoAP: what it remembers of a parameter from one client's steps meets the gradients of the next. A parameter is
// identified by its name and its shape, so clients whose private prompts have other lengths have buffers of their own,
// which start at zero.
//
// A nil one is none: every turn starts with a fresh optimizer.
type sharedOptimizer struct {
	state tensor.Map // SHAPE/SLOT/NAME
}

// load gives an optimizer what is remembered of some parameters.
func (s *sharedOptimizer) load(o *optim.Optimizer, params tensor.Map) error {
	if s == nil {
		return nil
	}
	state := tensor.Map{}
	for name, p := range params {
		at := shapeOf(p)
		for _, slot := range o.Slots() {
			if t := s.state[at+slot+name]; t != nil {
				state[slot+name] = t
			}
		}
	}
	return o.Load(state)
}

// OptimizerState is what a training with one optimizer for all clients remembers; nil for others.
func (w *Worker) OptimizerState() tensor.Map {
	if w.shared == nil {
		return nil
	}
	return w.shared.state
}

// RestoreOptimizer goes on from what optimizerState gave.
func (w *Worker) RestoreOptimizer(state tensor.Map) {
	if w.shared != nil {
		w.shared.state = state
	}
}

// keep remembers what an optimizer knows of some parameters after its steps.
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

// shapeOf is a shape as the beginning of a name.
func shapeOf(t *tensor.Tensor) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape), " ", "x"), "[]") + "/"
}
