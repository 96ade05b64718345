package client

import (
	"cmp"
	"fmt"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// memoryPrefix is what the names of method.Scope.Memory's inputs begin with.
const memoryPrefix = "client/"

// inputs is where the inputs of a program come from.
type inputs struct {
	l          *method.Local
	s          message.ClientState
	now, batch tensor.Map
	fixed      ort.Values // of program.fixed
	held       ort.Values // those of sameInTurn that were asked for; nil where there is one run alone
}

// sameInTurn tells whether an input is the same in all steps of a client's turn.
func sameInTurn(in string) bool {
	switch kind, _, _ := strings.Cut(in, "/"); kind {
	case method.ReceivedInput, method.BeforeInput, method.BroadcastInput:
		return true
	}
	return in == method.LocalClassesInput || in == method.MemoryImage || in == method.MemoryLabel
}

// feed is what a run of a program takes: tensors of its own, and values that may lie on a device already.
type feed struct {
	now  tensor.Map
	held ort.Values
}

// find gives one input by its name in the graph; nil when nothing provides it.
func (f inputs) find(in string) *tensor.Tensor {
	kind, name, _ := strings.Cut(in, "/")
	switch kind {
	case method.ParamInput:
		return f.now[name]
	case method.ReceivedInput:
		if t := f.l.Received[name]; t != nil {
			return t
		}
		return f.s.Private[name]
	case method.BeforeInput:
		if t := f.s.Own[name]; t != nil {
			return t
		}
		return f.find(method.ReceivedInput + "/" + name)
	case method.BroadcastInput:
		return f.l.Broadcast[name]
	case method.StateInput:
		return f.l.State[name]
	case method.ScalarInput:
		if v, ok := f.l.Scalars[name]; ok {
			return tensor.Of([]float32{float32(v)}, 1)
		}
		return nil
	}
	if in == method.LocalClassesInput {
		return f.owned()
	}
	return f.batch[in]
}

// need is find, and reads the client's own examples; what nothing provides is an error.
func (f inputs) need(in string) (*tensor.Tensor, error) {
	if in == method.MemoryImage || in == method.MemoryLabel {
		rows, err := f.l.Memory()
		if err != nil {
			return nil, fmt.Errorf("the method reads the client's own examples: %w", err)
		}
		return rows[strings.TrimPrefix(in, memoryPrefix)], nil
	}
	if t := f.find(in); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("the method needs %s, which is not available here", in)
}

// owned is method.Scope.LocalClasses.
func (f inputs) owned() *tensor.Tensor {
	if f.l.LocalClasses == nil {
		return nil
	}
	t := tensor.New(f.l.Task.Classes)
	for _, y := range f.l.LocalClasses {
		t.Data[y] = 1
	}
	return t
}

// feed collects all inputs of a program; those of host functions are computed.
func (f inputs) feed(p *program, host callbackValues, epoch int) (feed, error) {
	out := feed{tensor.Map{}, ort.Values{}}
	for _, in := range p.inputs {
		if strings.HasPrefix(in, method.HostInput+"/") {
			continue
		}
		if err := f.add(out, in); err != nil {
			return out, err
		}
	}
	return out, host.compute(p, f, out.now, epoch)
}

// add adds one input, and holds it for later steps where it is the same in these.
func (f inputs) add(to feed, in string) error {
	if v := cmp.Or(f.fixed[in], f.held[in]); v != nil {
		to.held[in] = v
		return nil
	}
	t, err := f.need(in)
	switch {
	case err != nil:
		return err
	case f.held != nil && sameInTurn(in):
		f.held[in] = ort.NewValue(t)
		to.held[in] = f.held[in]
	default:
		to.now[in] = t
	}
	return nil
}
