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

// callbackValues holds the values of host functions during one client's turn.
type callbackValues map[string]callbackValue

type callbackValue struct {
	epoch int
	value *tensor.Tensor
	vjp   method.VJP // nil where an older value is used again
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
			old.vjp = nil
			f.hostValues[call.Name], f.hosts[at] = old, old.value
			continue
		}
		args := make([]*tensor.Tensor, len(call.Of))
		for i, name := range call.Of {
			if args[i] = f.find(name); args[i] == nil {
				return fmt.Errorf("%s needs %s, which is not available here", call.Name, name)
			}
		}
		v, vjp, err := call.Func.Forward(args...)
		if err != nil {
			return fmt.Errorf("%s: %w; %s", call.Name, err, message.DivergenceHint)
		}
		f.hosts[at] = v
		if f.hostValues != nil {
			f.hostValues[call.Name] = callbackValue{f.epoch, v, vjp}
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
		if !call.Func.Differentiable || dy == nil {
			continue
		}
		var dx []*tensor.Tensor
		if vjp := in.hostValues[call.Name].vjp; vjp != nil {
			var err error
			if dx, err = vjp(dy); err != nil {
				return nil, fmt.Errorf("gradient of %s: %w", call.Name, err)
			}
			if len(dx) != len(call.Of) {
				return nil, fmt.Errorf("gradient of %s: %d gradients for %d arguments", call.Name, len(dx),
					len(call.Of))
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
