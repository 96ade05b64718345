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

// memoryPrefix begins the names of the inputs of method.Scope.Memory.
const memoryPrefix = "client/"

// inputs has the values of a plan's inputs, for one client.
type inputs struct {
	l          *method.Local
	s          message.ClientState
	now, batch tensor.Map     // current parameters; rows of data
	prefix     ort.Values     // values of plan.prefix
	hosts      tensor.Map     // values of host functions; nil before they are computed
	hostValues callbackValues // of the turn; nil outside of one
	epoch      int
	held       ort.Values // values of sameInTurn that were asked for; nil where there is one run alone
}

// inputsOf returns the inputs at the current parameters, without rows.
func inputsOf(l *method.Local, s message.ClientState) inputs {
	return inputs{l: l, s: s, now: parameters(l)}
}

// rows is the size of the batch; 0 where there is none.
func (f inputs) rows() int {
	if y := f.batch[method.LabelInput]; y != nil {
		return y.Shape[0]
	}
	return 0
}

// sameInTurn reports whether an input is the same in all steps of a client's turn.
func sameInTurn(in string) bool {
	switch kind, _, _ := strings.Cut(in, "/"); kind {
	case method.ReceivedInput, method.BeforeInput, method.BroadcastInput:
		return true
	}
	return in == method.LocalClassesInput || in == method.MemoryImage || in == method.MemoryLabel
}

// feed has the inputs of one run of a program: tensors, and values that may be on a device already.
type feed struct {
	now  tensor.Map
	held ort.Values
}

// find returns one input by its name in the graph; nil when nothing provides it.
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
	case method.HostInput:
		return f.hosts[in]
	}
	if in == method.LocalClassesInput {
		return f.localClasses()
	}
	return f.batch[in]
}

// need returns one input as find does, and also the client's own examples. An input that is not available is an error.
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

// localClasses returns the tensor of method.Scope.LocalClasses.
func (f inputs) localClasses() *tensor.Tensor {
	if f.l.LocalClasses == nil {
		return nil
	}
	t := tensor.New(f.l.Task.Classes)
	for _, y := range f.l.LocalClasses {
		t.Data[y] = 1
	}
	return t
}

// feed collects all inputs of a program.
func (f inputs) feed(p *program) (feed, error) {
	out := feed{tensor.Map{}, ort.Values{}}
	for _, in := range p.inputs {
		if err := f.add(out, in); err != nil {
			return out, err
		}
	}
	return out, nil
}

// add adds one input, and keeps it for later steps that read the same value.
func (f inputs) add(to feed, in string) error {
	if v := cmp.Or(f.prefix[in], f.held[in]); v != nil {
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
