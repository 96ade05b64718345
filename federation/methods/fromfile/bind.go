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
	method ONNX
	scope  *method.Scope
	role   *role
	task   method.ClientSpec // whose sizes shapes have
	now    map[graph.Node]graph.Node
	busy   map[port]bool
	size   *int // elements of all values so far
	sums   int  // summands of the loss so far
}

func (m ONNX) bind(scope *method.Scope, r *role, task method.ClientSpec) *binder {
	return &binder{method: m, scope: scope, role: r, task: task, now: map[graph.Node]graph.Node{},
		busy: map[port]bool{},
		size: new(int)}
}

func (b *binder) fail(format string, a ...any) graph.Node {
	return b.scope.Graph().Fail(b.method.at()+format, a...)
}

// output returns an output of the file.
func (b *binder) output(out port) graph.Node {
	n, ok := b.method.file.graph.Output(out.String())
	switch {
	case !ok:
		return b.fail("there is no output %s", out)
	case b.busy[out]:
		return b.fail("output %s depends on itself", out)
	}

	b.busy[out] = true
	defer delete(b.busy, out)
	return b.value(n)
}

// value returns the node in the scope's graph for a value of the file.
func (b *binder) value(node graph.Node) graph.Node {
	g := b.scope.Graph()
	for _, op := range graph.ReachableUpTo(b.now, node) {
		if in := op.Out[0]; op.IsInput() {
			bound := b.checked(in, b.input(b.method.file.inputs[in]))
			if g.Err() != nil {
				return bound
			}
			b.now[in] = bound
		}
	}

	if out, ok := b.now[node]; ok {
		return out
	}

	out, err := graph.InlineWith(g, []graph.Node{node}, b.now, b.operator)
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
	for i, result := range out {
		if result.Shape() == nil {
			return nil, fmt.Errorf("the number of axes of its result is not known")
		}

		elements := 1
		for _, d := range result.Shape() {
			for _, f := range d.Factors() {
				if f != "B" && f != uploadsDim {
					return nil, fmt.Errorf("its result has shape %v; the size %s is not known before it runs",
						result.Shape(), f)
				}
			}
			n := max(1, d.N) // may be near the largest int
			if n > maxElements/elements {
				return nil, fmt.Errorf("its result has shape %v; at most %d elements are allowed", result.Shape(),
					maxElements)
			}
			elements *= n
		}

		if *b.size += max(elements, minElements); *b.size > maxAll {
			return nil, fmt.Errorf("all results together have more than %d elements", maxAll)
		}

		if i < len(op.Out) && b.method.file.detached[op.Out[i].Name()] {
			out[i] = result.Detach()
		}
	}

	return out, nil
}

// checked refuses an input whose type or shape in the file is not that of what it is bound to.
func (b *binder) checked(in, bound graph.Node) graph.Node {
	if b.scope.Graph().Err() != nil {
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
func (b *binder) input(in port) graph.Node {
	name, scope, client := in.name, b.scope, b.task
	pattern := name
	if in.kind != "" {
		pattern = in.kind + "/NAME"
	}

	if !slices.Contains(b.role.inputs, pattern) {
		return b.fail("an output reads %s, which is not there: %s; it may read %s", in, b.role.what,
			strings.Join(b.role.inputs, ", "))
	}

	switch in.String() {
	case "image":
		return scope.Image()
	case "label":
		return scope.Label()
	case "hand":
		return scope.HandText()
	case "patches":
		if client.Patches == 0 {
			return b.fail("it reads patch features, which backbone %s does not provide", client.Backbone)
		}
		return scope.Patches()
	case "scale":
		return scope.Graph().Scalar(client.Scale)
	case "classes/n":
		return scope.Graph().Scalar(float64(client.Classes))
	case "clients/n":
		return scope.Graph().Scalar(float64(client.Clients))
	case "client/n", "step":
		return scope.Scalar(own(name))
	case "round", "lr":
		if b.role == ofServer {
			return scope.Broadcast(name, 1).Reshape()
		}
		return scope.Scalar(own(name))
	case "weights":
		return b.ofUploads(in)
	case "teacher/logits":
		teacher := b.method.bind(scope.Received(), ofScores, client)
		teacher.size = b.size
		return teacher.output(port{name: "logits"}).Detach()
	}

	switch in.kind {
	case "param":
		return b.parameter(scope, name)
	case "received":
		if b.role == ofServer {
			return scope.Broadcast(in.String(), b.method.parameterShape(name, client)...)
		}
		return b.parameter(scope.Received(), name)
	case "before":
		return b.parameter(scope.LastTrained(), name)
	case "text":
		return b.text(in)
	case "function":
		return b.function(name)
	case "noise":
		n := b.method.file.meta.Noise[name]
		shape := b.method.shape(Tensor{Shape: n.Shape}, client)
		if len(shape) > 0 && shape[0] < 0 {
			return scope.Input(drawn(name), graph.Float, graph.Rows("B", shape[1:]...))
		}
		one := graph.Static(append([]int{1}, shape...)...) // no part of a batch
		return scope.Input(drawn(name), graph.Float, one).Squeeze(0)
	case "state":
		return scope.State(own(name), b.method.shape(b.method.file.meta.State[name], client)...)
	case "down":
		return scope.Broadcast(own(name), b.method.shape(b.method.file.meta.Down[name], client)...)
	case "uploads":
		if in.part != "" {
			return b.ofUploads(in, b.method.shape(b.method.file.meta.Up[name], client)...)
		}
		return b.ofUploads(in, b.method.parameterShape(name, client)...)
	}

	return b.fail("input %s is not known", in)
}

// ofUploads returns a tensor of each upload.
func (b *binder) ofUploads(in port, sizes ...int) graph.Node {
	return b.scope.Input(method.Input{Kind: method.BroadcastInput, Name: in.String()}, graph.Float,
		graph.Rows(uploadsDim, sizes...))
}

// parameter returns a parameter, with its words where it is a prompt of a step. At the end of a turn, as on the server,
// it is the offset from them.
func (b *binder) parameter(scope *method.Scope, name string) graph.Node {
	p, _ := b.method.file.meta.parameter(name)
	if p.Words == "" || b.role == ofFinish {
		return scope.TrainedValue(name)
	}
	return prompts.OffsetContext{Tokens: b.method.length(p, b.task), Words: p.Words}.Full(scope, name)
}

// text returns the class features of a prompt: a parameter, a function's value, or the output prompt/NAME.
func (b *binder) text(in port) graph.Node {
	values := b
	switch in.part {
	case "received":
		values = b.method.bind(b.scope.Received(), b.role, b.task)
	case "before":
		values = b.method.bind(b.scope.LastTrained(), b.role, b.task)
	}

	if in.part != "" && !slices.Contains(b.role.inputs, "received/NAME") {
		return b.fail("an output reads text/received or text/before, which is not there: %s", b.role.what)
	}

	values.busy, values.size = b.busy, b.size
	layout := b.method.file.meta.Texts[in.name]
	textPrompt := method.Prompt{Position: layout.Position, ReadOffset: layout.ReadOffset}
	prompt := port{kind: "prompt", name: in.name}
	if _, made := b.method.file.graph.Output(prompt.String()); made {
		textPrompt.Ctx = values.output(prompt)
	} else if _, function := b.method.file.calls[in.name]; function {
		textPrompt.Ctx = values.function(in.name)
	} else {
		textPrompt.Ctx = values.parameter(values.scope, in.name)
	}

	if b.scope.Graph().Err() != nil {
		return textPrompt.Ctx
	}

	shape := textPrompt.Ctx.Shape()
	switch r := len(shape); {
	case r != 2 && r != 3 || !shape[r-1].Is(b.task.Width) || !shape[r-2].Static() ||
		textPrompt.Ctx.DType() != graph.Float || r == 3 && shape[0] != graph.Sym("B") && !shape[0].Is(b.task.Classes):
		return b.fail("prompt %s has shape %v; it must be [T,w], [B,T,w] or [C,T,w] with w %d", in.name, shape,
			b.task.Width)
	case shape[r-2].N > maxTokens:
		return b.fail("prompt %s has %d tokens; at most %d are allowed", in.name, shape[r-2].N, maxTokens)
	case r == 3:
		textPrompt.PerClass = shape[0].Static()
	}

	return values.scope.TextFeatures(textPrompt)
}

// uploadsDim is the symbol of the number of uploads of a round.
const uploadsDim = "K"

// own is the name of a tensor of this method among those of its wrappers, and drawn that of noise in a batch.
func own(name string) string         { return "file/" + name }
func drawn(name string) method.Input { return method.Input{Kind: method.DrawInput, Name: own(name)} }
