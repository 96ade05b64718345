package client

import (
	"cmp"
	"fmt"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// inputs has the values of a plan's inputs, for one client.
type inputs struct {
	local      *method.Local
	state      message.ClientState
	now, batch tensor.Map     // current parameters; rows of data
	prefix     ort.Values     // values of plan.prefix
	hosts      tensor.Map     // values of host functions by name; nil before they are computed
	hostValues callbackValues // of the turn; nil outside of one
	epoch      int
	held       ort.Values // values of sameInTurn that were asked for; nil where there is one run alone
}

// inputsOf returns the inputs at the current parameters, without rows.
func inputsOf(local *method.Local, s message.ClientState) inputs {
	return inputs{local: local, state: s, now: parameters(local)}
}

// rows is the size of the batch; 0 where there is none.
func (f inputs) rows() int {
	if y := f.batch[method.LabelInput]; y != nil {
		return y.Shape[0]
	}
	return 0
}

// sameInTurn are the kinds of inputs that are the same in all steps of a client's turn.
var sameInTurn = []method.InputKind{method.ReceivedInput, method.BeforeInput, method.BroadcastInput, method.ClientInput}

// feed has the inputs of one run of a program, by their names in ONNX: tensors, and values that may be on a device
// already.
type feed struct {
	now  tensor.Map
	held ort.Values
}

// find returns the value of one input; nil when nothing provides it.
func (f inputs) find(in method.Input) *tensor.Tensor {
	switch in.Kind {
	case method.RowInput, method.DrawInput:
		return f.batch[in.String()]
	case method.ParamInput:
		return f.now[in.Name]
	case method.ReceivedInput:
		return cmp.Or(f.local.Received[in.Name], f.state.Private[in.Name])
	case method.BeforeInput:
		return cmp.Or(f.state.Own[in.Name], f.local.Received[in.Name], f.state.Private[in.Name])
	case method.BroadcastInput:
		return f.local.Broadcast[in.Name]
	case method.StateInput:
		return f.local.State[in.Name]
	case method.ScalarInput:
		if v, ok := f.local.Scalars[in.Name]; ok {
			return tensor.Of([]float32{float32(v)}, 1)
		}
	case method.HostInput:
		return f.hosts[in.Name]
	case method.ClientInput:
		if in == method.LocalClassesInput {
			return f.localClasses()
		}
	}

	return nil
}

// need returns one input as find does, and also the client's own examples. An input that is not available is an error.
func (f inputs) need(in method.Input) (*tensor.Tensor, error) {
	if in == method.MemoryImage || in == method.MemoryLabel {
		rows, err := f.local.Memory()
		if err != nil {
			return nil, fmt.Errorf("the method reads the client's own examples: %w", err)
		}
		return rows[in.Name], nil
	}

	if t := f.find(in); t != nil {
		return t, nil
	}

	return nil, fmt.Errorf("the method needs %s, which is not available here", in)
}

func (f inputs) localClasses() *tensor.Tensor {
	if f.local.LocalClasses == nil {
		return nil
	}

	t := tensor.New(f.local.Task.Classes)
	for _, y := range f.local.LocalClasses {
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
func (f inputs) add(to feed, in method.Input) error {
	name := in.String()
	if v := cmp.Or(f.prefix[name], f.held[name]); v != nil {
		to.held[name] = v
		return nil
	}

	t, err := f.need(in)
	switch {
	case err != nil:
		return err
	case f.held != nil && slices.Contains(sameInTurn, in.Kind):
		f.held[name] = ort.NewValue(t)
		to.held[name] = f.held[name]
	default:
		to.now[name] = t
	}

	return nil
}

// callbackValues holds the values of host functions during one client's turn.
type callbackValues map[string]callbackValue

type callbackValue struct {
	epoch    int
	value    *tensor.Tensor
	pullback method.Pullback // nil where an older value is used again
}

// computeHosts computes the values of a program's host functions, unless they are there.
func (f *inputs) computeHosts(p *program) error {
	if f.hosts != nil {
		return nil
	}

	f.hosts = tensor.Map{}
	for _, call := range p.hosts {
		old, done := f.hostValues[call.Name]
		if done && (call.Func.Every == method.EveryRound || call.Func.Every == method.EveryEpoch &&
			old.epoch == f.epoch) {
			old.pullback = nil
			f.hostValues[call.Name], f.hosts[call.Name] = old, old.value
			continue
		}

		args := make([]*tensor.Tensor, len(call.Args))
		for i, in := range call.Args {
			if args[i] = f.find(in); args[i] == nil {
				return fmt.Errorf("%s needs %s, which is not available here", call.Name, in)
			}
		}

		v, pullback, err := call.Func.Forward(args...)
		if err != nil {
			return fmt.Errorf("%s: %w; %s", call.Name, err, message.DivergenceHint)
		}

		f.hosts[call.Name] = v
		if f.hostValues != nil {
			f.hostValues[call.Name] = callbackValue{f.epoch, v, pullback}
		}
	}

	return nil
}

// draws returns the values of host functions that a trace records, by name.
func (p *program) draws(hosts tensor.Map) tensor.Map {
	out := tensor.Map{}
	for _, h := range p.hosts {
		if h.Func.Trace != nil {
			out[h.Name] = h.Func.Trace(hosts[h.Name])
		}
	}
	return out
}

// gradients returns the gradient of every parameter that a loss depends on: outputs of the graph, and the part that
// reaches parameters through host functions that this step computed anew. An older value is a constant.
func (p *plan) gradients(in inputs, out tensor.Map, from lossName) (tensor.Map, error) {
	grads := tensor.Map{}
	for _, wrt := range p.learned {
		if d := out[from.gradient(wrt)]; d != nil && wrt.Kind == method.ParamInput {
			grads[wrt.Name] = d
		}
	}

	for _, call := range p.hosts {
		dy := out[from.gradient(call.Input())]
		if !call.Func.Differentiable || dy == nil {
			continue
		}

		var dx []*tensor.Tensor
		if pullback := in.hostValues[call.Name].pullback; pullback != nil {
			var err error
			if dx, err = pullback(dy); err != nil {
				return nil, fmt.Errorf("gradient of %s: %w", call.Name, err)
			}
			if len(dx) != len(call.Args) {
				return nil, fmt.Errorf("gradient of %s: %d gradients for %d arguments", call.Name, len(dx),
					len(call.Args))
			}
		}

		for i, arg := range call.Args {
			if arg.Kind != method.ParamInput {
				continue
			}
			if grads[arg.Name] == nil {
				grads[arg.Name] = tensor.New(in.now[arg.Name].Shape...)
			}
			if dx != nil && dx[i] != nil {
				grads[arg.Name].Axpy(1, dx[i])
			}
		}
	}

	return grads, nil
}
