package fromfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/optimaltransport"
	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// engineFunctions are the functions that Metadata.Functions may name, with their numbers of arguments.
var engineFunctions = map[string]int{"cosine": 2, "cross_entropy": 1, "project": 2, "transport": 1}

// call is a checked Function.
type call struct {
	function string
	args     []port
	options  any // of project and transport
}

// decoded refuses unknown functions, arguments and options.
func (f Function) decoded() (use call, err error) {
	use.function = f.Function
	for _, name := range f.Of {
		use.args = append(use.args, parsePort(name))
	}

	n, ok := engineFunctions[f.Function]
	switch {
	case !ok:
		err = fmt.Errorf("%.30q is not one of %s", f.Function,
			strings.Join(slices.Sorted(maps.Keys(engineFunctions)), ", "))
	case len(use.args) != n:
		err = fmt.Errorf("%s has %d arguments, not %d", f.Function, n, len(use.args))
	case f.Function == "project":
		use.options, err = f.project(use.args[1])
	case f.Function == "transport":
		use.options, err = f.transport()
	case f.Options != nil:
		err = fmt.Errorf("%s has no options", f.Function)
	}

	return use, err
}

func (f Function) project(off port) (projection.OfPrompt, error) {
	ofPrompt := projection.OfPrompt{Projector: projection.ExactNull, Ratio: 0.8, Gradient: "detach",
		Every: method.EveryStep}
	if err := f.decode(&ofPrompt); err != nil {
		return ofPrompt, err
	}

	_, err := projection.Project(tensor.Of([]float32{1, 0}, 1, 2), ofPrompt.Projector, ofPrompt.Ratio)
	every := []method.Frequency{method.EveryStep, method.EveryEpoch, method.EveryRound}
	switch {
	case err != nil:
	case ofPrompt.Gradient != "detach" && ofPrompt.Gradient != "through" || !slices.Contains(every, ofPrompt.Every):
		err = errors.New("gradient is detach or through, and every is step, epoch or round")
	case off.kind != "param":
		err = fmt.Errorf("its second argument is %.60q; it must be a parameter, param/NAME", off)
	}

	return ofPrompt, err
}

func (f Function) transport() (optimaltransport.Entropic, error) {
	entropic := optimaltransport.Entropic{Mass: 0.4, Bounded: true, Eps: 0.1, Iters: 100, Threshold: 1e-3,
		Stop: "image"}
	if err := f.decode(&entropic); err != nil {
		return entropic, err
	}

	if !(entropic.Mass >= 1e-3 && entropic.Mass <= 1) || !(entropic.Eps >= 1e-4 && entropic.Eps <= 1e4) ||
		entropic.Iters < 1 || entropic.Iters > 10000 || !(entropic.Threshold >= 0 && entropic.Threshold <= 1e9) ||
		!slices.Contains([]string{"image", "pair", "code"}, entropic.Stop) {
		return entropic, errors.New("mass is 0.001 to 1, eps 0.0001 to 10000, iters 1 to 10000, " +
			"threshold from 0, and stop image, pair or code")
	}

	entropic.OnRows = !entropic.Bounded && entropic.Stop == "code"
	return entropic, nil
}

func (f Function) decode(into any) error {
	if f.Options == nil {
		return nil
	}
	if err := decode(f.Options, into); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return nil
}

// function returns the value of a function of the engine.
func (b *binder) function(name string) graph.Node {
	use, key := b.method.file.calls[name], port{kind: "function", name: name}
	if b.busy[key] {
		return b.fail("%s depends on itself", key)
	}

	b.busy[key] = true
	defer delete(b.busy, key)
	in := make([]graph.Node, len(use.args))
	for i, arg := range use.args {
		if n, ok := b.method.file.graph.Output(arg.String()); ok {
			if bound, given := b.now[n]; given {
				in[i] = bound
			} else {
				in[i] = b.output(arg)
			}
		} else {
			in[i] = b.input(arg)
		}
	}

	if b.scope.Graph().Err() != nil {
		return in[0]
	}

	wrong := func(arg int, shape string) graph.Node {
		return b.fail("%s: %s has shape %v; %s takes %s", key, use.args[arg], in[arg].Shape(), use.function, shape)
	}
	for i, n := range in {
		if n.DType() != graph.Float {
			return wrong(i, "float32")
		}
	}

	rank := func(i int) int { return in[i].Rank() }
	switch options := use.options.(type) {
	case projection.OfPrompt:
		for i, n := range in {
			if n.Rank() != 2 || !n.Shape()[1].Is(b.task.Width) {
				return wrong(i, "[T,w]")
			}
		}
		return options.Apply(b.scope, name, in[0], in[1])
	case optimaltransport.Entropic:
		shape := in[0].Shape()
		if len(shape) != 4 || shape[1] != graph.Sym("B") || !shape[0].Static() || !shape[2].Static() ||
			!shape[3].Static() {
			return wrong(0, "similarities [N,B,C,M]")
		}
		return options.Plan(in[0].Detach())
	}

	switch use.function {
	case "cosine":
		if rank(0) != 2 || rank(1) != 2 || in[0].Shape()[1] != in[1].Shape()[1] {
			return wrong(1, "[B,D] and [C,D]")
		}
		return b.scope.Cosine(in[0], in[1])
	case "cross_entropy":
		if rank(0) != 2 || !in[0].Shape()[1].Is(b.task.Classes) {
			return wrong(0, "[B,C]")
		}
		return b.scope.LabelLoss(in[0])
	}

	return b.fail("%s cannot be computed", key)
}
