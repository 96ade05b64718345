package fromfile

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// role is the computation that reads an input, and decides which inputs there are.
type role struct {
	what   string   // in errors
	inputs []string // a name, or KIND/NAME for all names of a kind
}

var (
	ofScores = &role{"the class scores are computed in tests too",
		[]string{"image", "hand", "patches", "scale", "classes/n", "text/NAME", "param/NAME", "function/NAME"}}
	ofLoss = &role{"a step", slices.Concat(ofScores.inputs, []string{"label", "client/n", "step", "round", "lr",
		"teacher/logits", "received/NAME", "before/NAME", "noise/NAME", "state/NAME", "down/NAME"})}
	ofFinish = &role{"the end of a client's turn", []string{"param/NAME", "received/NAME", "before/NAME", "state/NAME",
		"down/NAME", "client/n", "classes/n", "step", "round", "lr", "scale"}}
	ofServer = &role{"the server", []string{"uploads/NAME", "weights", "received/NAME", "down/NAME", "clients/n",
		"classes/n", "round", "lr"}}
)

// allInputs are the inputs of all roles, sorted.
var allInputs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(ofLoss.inputs, ofFinish.inputs,
	ofServer.inputs))))

// binder rebuilds values of a file's graph in the graph of a scope.
type binder struct {
	m    ONNX
	s    *method.Scope
	role *role
	task method.ClientSpec // whose sizes shapes have
	now  map[graph.Node]graph.Node
	busy map[string]bool
	size *int // elements of all values so far
	sums int  // summands of the loss so far
}

func (m ONNX) bind(s *method.Scope, r *role, task method.ClientSpec) *binder {
	return &binder{m: m, s: s, role: r, task: task, now: map[graph.Node]graph.Node{}, busy: map[string]bool{},
		size: new(int)}
}

func (b *binder) fail(format string, a ...any) graph.Node {
	return b.s.Graph().Fail(b.m.at()+format, a...)
}

// output returns an output of the file by its name.
func (b *binder) output(name string) graph.Node {
	n, ok := b.m.file.graph.Output(name)
	switch {
	case !ok:
		return b.fail("there is no output %s", name)
	case b.busy[name]:
		return b.fail("output %s depends on itself", name)
	}
	b.busy[name] = true
	defer delete(b.busy, name)
	return b.value(n)
}

// value returns the node in the scope's graph for a value of the file.
func (b *binder) value(n graph.Node) graph.Node {
	g := b.s.Graph()
	for _, op := range graph.ReachableUpTo(b.now, n) {
		if in := op.Out[0]; op.IsInput() {
			bound := b.checked(in, b.input(in.Name()))
			if g.Err() != nil {
				return bound
			}
			b.now[in] = bound
		}
	}
	if out, ok := b.now[n]; ok {
		return out
	}
	out, err := graph.InlineWith(g, []graph.Node{n}, b.now, b.operator)
	if err != nil {
		return b.fail("%w", err)
	}
	return out[0]
}

// operator bounds the results of an operator, and stops gradients where the metadata says so.
func (b *binder) operator(op *graph.Op, in []graph.Node, apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node,
	error) {
	out, err := apply(in)
	if err != nil {
		return nil, err
	}
	out = slices.Clone(out)
	for i, n := range out {
		if n.Shape() == nil {
			return nil, fmt.Errorf("the number of axes of its result is not known")
		}
		elements := 1
		for _, d := range n.Shape() {
			for _, f := range d.Factors() {
				if f != "B" && f != uploadsDim {
					return nil, fmt.Errorf("its result has shape %v; the size %s is not known before it runs",
						n.Shape(), f)
				}
			}
			if elements *= max(1, d.N); elements > maxElements {
				return nil, fmt.Errorf("its result has shape %v; at most %d elements are allowed", n.Shape(),
					maxElements)
			}
		}
		if *b.size += max(elements, minElements); *b.size > maxAll {
			return nil, fmt.Errorf("all results together have more than %d elements", maxAll)
		}
		if i < len(op.Out) && b.m.file.detached[op.Out[i].Name()] {
			out[i] = n.Detach()
		}
	}
	return out, nil
}

// checked refuses an input whose type or shape in the file is not that of what it is bound to.
func (b *binder) checked(in, bound graph.Node) graph.Node {
	if b.s.Graph().Err() != nil {
		return bound
	}
	fits := in.DType() == bound.DType() && (in.Shape() == nil || len(in.Shape()) == len(bound.Shape()))
	for i, d := range in.Shape() {
		fits = fits && (!d.Static() || d == bound.Shape()[i])
	}
	if !fits {
		return b.fail("input %s is %v%v in the file; it must be %v with axes for %v, and sizes that differ between "+
			"clients must be dynamic axes", in.Name(), in.DType(), in.Shape(), bound.DType(), bound.Shape())
	}
	return bound
}

// input returns what an input of the file is bound to.
func (b *binder) input(name string) graph.Node {
	kind, rest, _ := strings.Cut(name, "/")
	if !slices.Contains(b.role.inputs, name) && !slices.Contains(b.role.inputs, kind+"/NAME") {
		return b.fail("an output reads %s, which is not there: %s; it may read %s", name, b.role.what,
			strings.Join(b.role.inputs, ", "))
	}
	s, t := b.s, b.task
	switch name {
	case "image":
		return s.Image()
	case "label":
		return s.Label()
	case "hand":
		return s.HandText()
	case "patches":
		if t.Patches == 0 {
			return b.fail("it reads patch features, which backbone %s does not provide", t.Backbone)
		}
		return s.Patches()
	case "scale":
		return s.Graph().Scalar(t.Scale)
	case "classes/n":
		return s.Graph().Scalar(float64(t.Classes))
	case "clients/n":
		return s.Graph().Scalar(float64(t.Clients))
	case "client/n", "step":
		return s.Scalar(own(name))
	case "round", "lr":
		if b.server() {
			return s.Broadcast(name, 1).Reshape()
		}
		return s.Scalar(own(name))
	case "weights":
		return s.Graph().Input(method.BroadcastInput+"/"+name, graph.Float, graph.Shape{graph.Sym(uploadsDim)})
	case "teacher/logits":
		return b.m.bind(s.Received(), ofScores, t).output("logits").Detach()
	}
	switch kind {
	case "param":
		return b.parameter(s, rest)
	case "received":
		if b.server() {
			return s.Broadcast(name, b.m.parameterShape(rest, t)...)
		}
		return b.parameter(s.Received(), rest)
	case "before":
		return b.parameter(s.LastTrained(), rest)
	case "text":
		return b.text(rest)
	case "function":
		return b.function(rest)
	case "noise":
		n := b.m.file.meta.Noise[rest]
		shape := b.m.shape(Tensor{Shape: n.Shape}, t)
		x := graph.Static(append([]int{1}, shape...)...) // no part of a batch
		if len(shape) > 0 && shape[0] < 0 {
			x = append(graph.Shape{graph.Sym("B")}, graph.Static(shape[1:]...)...)
			return s.Graph().Input(drawn(rest), graph.Float, x)
		}
		return s.Graph().Input(drawn(rest), graph.Float, x).Squeeze(0)
	case "state":
		return s.State(own(rest), b.m.shape(b.m.file.meta.State[rest], t)...)
	case "down":
		return s.Broadcast(own(rest), b.m.shape(b.m.file.meta.Down[rest], t)...)
	case "uploads":
		shape := graph.Shape{graph.Sym(uploadsDim)}
		if up, ok := strings.CutPrefix(rest, "up/"); ok {
			shape = append(shape, graph.Static(b.m.shape(b.m.file.meta.Up[up], t)...)...)
		} else {
			shape = append(shape, graph.Static(b.m.parameterShape(rest, t)...)...)
		}
		return s.Graph().Input(method.BroadcastInput+"/"+name, graph.Float, shape)
	}
	return b.fail("input %s is not known", name)
}

// parameter returns a parameter, with its words where it is a prompt of a step. At the end of a turn, as on the server,
// it is the offset from them.
func (b *binder) parameter(s *method.Scope, name string) graph.Node {
	p, _ := b.m.file.meta.parameter(name)
	if p.Words == "" || b.role == ofFinish {
		return s.TrainedValue(name)
	}
	return prompts.OffsetContext{Tokens: b.m.length(p, b.task), Words: p.Words}.Full(s, name)
}

func (b *binder) server() bool { return b.role == ofServer }

// text returns the class features of a prompt: a parameter, a function's value, or the output prompt/NAME.
func (b *binder) text(name string) graph.Node {
	of := b
	if rest, ok := strings.CutPrefix(name, "received/"); ok {
		of, name = b.m.bind(b.s.Received(), b.role, b.task), rest
	} else if rest, ok := strings.CutPrefix(name, "before/"); ok {
		of, name = b.m.bind(b.s.LastTrained(), b.role, b.task), rest
	}
	if of != b && !slices.Contains(b.role.inputs, "received/NAME") {
		return b.fail("an output reads text/received or text/before, which is not there: %s", b.role.what)
	}
	of.busy, of.size = b.busy, b.size
	l := b.m.file.meta.Texts[name]
	p := method.Prompt{PromptLayout: method.PromptLayout{Position: l.Position, ReadOffset: l.ReadOffset}}
	if _, made := b.m.file.graph.Output("prompt/" + name); made {
		p.Ctx = of.output("prompt/" + name)
	} else if _, function := b.m.file.meta.Functions[name]; function {
		p.Ctx = of.function(name)
	} else {
		p.Ctx = of.parameter(of.s, name)
	}
	if b.s.Graph().Err() != nil {
		return p.Ctx
	}
	shape := p.Ctx.Shape()
	switch r := len(shape); {
	case r != 2 && r != 3 || !shape[r-1].Is(b.task.Width) || !shape[r-2].Static() || p.Ctx.DType() != graph.Float ||
		r == 3 && shape[0] != graph.Sym("B") && !shape[0].Is(b.task.Classes):
		return b.fail("prompt %s has shape %v; it must be [T,w], [B,T,w] or [C,T,w] with w %d", name, shape,
			b.task.Width)
	case shape[r-2].N > maxTokens:
		return b.fail("prompt %s has %d tokens; at most %d are allowed", name, shape[r-2].N, maxTokens)
	case r == 3:
		p.PerClass = shape[0].Static()
	}
	return of.s.TextFeatures(p)
}

// uploadsDim is the symbol of the number of uploads of a round.
const uploadsDim = "K"

// own is the name of a tensor of this method among those of its wrappers, and drawn that of noise in a batch.
func own(name string) string   { return "file/" + name }
func drawn(name string) string { return "draw/file/" + name }
