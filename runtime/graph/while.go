package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// While runs body at most n times. body gets the states as inputs of a separate graph, which reads no outer values, and
// returns their next values, in the same order and shapes, and a boolean that broadcasts to on, a tensor of ones. Where
// it is false, states keep their values in later iterations; the loop ends once it is false everywhere. on broadcasts
// to each state. A state that body returns unchanged is a constant of the loop. body may use only standard operators.
// The result is the last states, which have no gradient. It is written as ONNX's Loop.
func While(n int, on Node, body func(state []Node) (next []Node, goes Node), init ...Node) []Node {
	g := on.Graph()
	fail := func(format string, a ...any) []Node {
		return slices.Repeat([]Node{g.Fail(format, a...)}, len(init))
	}
	all := append(slices.Clone(init), on)
	if slices.ContainsFunc(all, Node.failed) {
		return fail("While: a state failed before")
	}

	in, states := loopInputs(all)
	states, on = states[:len(init)], states[len(init)]
	next, goes := body(states)
	if len(next) != len(init) {
		return fail("While: %d states became %d", len(init), len(next))
	}

	limit := on.ScalarLike(0.5)
	active, goes := on.Greater(limit), goes.Cast(Float).Mul(on)
	out := []Output{{"more", goes.Sum().Greater(limit)}}
	for i, x := range append(slices.Clone(next), goes) {
		if x.OK() && !x.failed() && (x.DType() != all[i].DType() ||
			fmt.Sprint(x.Shape()) != fmt.Sprint(all[i].Shape())) {
			return fail("While: state %d is %v%v and becomes %v%v", i, all[i].DType(), all[i].Shape(), x.DType(),
				x.Shape())
		}
		if i < len(next) && x != states[i] {
			x = active.Where(x, states[i])
		}
		out = append(out, Output{fmt.Sprint("next", i), x})
	}

	inner, err := loopBody(in, out)
	if err != nil {
		return fail("While: %w", err)
	}

	nodes := slices.Clone(g.while(g.Scalar64(n), inner, all))[:len(init)]
	for i := range nodes {
		if !nodes[i].failed() {
			nodes[i] = nodes[i].Detach()
		}
	}

	return nodes
}

func (g *Graph) while(n Node, body *onnx.GraphProto, states []Node) []Node {
	proto := &onnx.AttributeProto{Name: "body", Type: onnx.AttributeProto_GRAPH, G: body}
	return g.apply(whileDef, whileDef.Domain, whileDef.Kind, Attrs{"body": Attr(proto)}, len(states),
		append([]Node{n}, states...))
}

// loopInputs returns the inputs of the body of an ONNX Loop: the iteration number, the condition, and the states.
func loopInputs(init []Node) (all, states []Node) {
	g := New()
	all = []Node{g.Input("time", Int64, Static()), g.Input("on", Bool, Static())}
	for i, x := range init {
		states = append(states, g.Input(fmt.Sprint("state", i), x.DType(), x.Shape()))
	}
	return append(all, states...), states
}

// loopPrefix begins the names of values in the bodies of While.
const loopPrefix = "loop"

// loopBody returns the body. Its names begin with a digest of its content, so that no outer name is equal.
func loopBody(in []Node, out []Output) (*onnx.GraphProto, error) {
	m, err := Model(out...)
	if err != nil {
		return nil, err
	}

	if len(m.OpsetImport) > 1 || m.OpsetImport[0].Version > Opset {
		return nil, fmt.Errorf("the body uses operators of %v", m.OpsetImport[len(m.OpsetImport)-1])
	}

	graphProto := m.Graph
	graphProto.Input = nil // unused inputs are required too
	for _, n := range in {
		graphProto.Input = append(graphProto.Input, valueInfo(n.Name(), n))
	}

	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(graphProto)
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(content)
	prefix := loopPrefix + hex.EncodeToString(sum[:6]) + "/"
	rename := func(names []string) {
		for i := range names {
			if names[i] != "" {
				names[i] = prefix + names[i]
			}
		}
	}

	for _, n := range graphProto.Node {
		rename(n.Input)
		rename(n.Output)
	}

	for _, t := range graphProto.Initializer {
		t.Name = prefix + t.Name
	}

	for _, v := range append(graphProto.Input, graphProto.Output...) {
		v.Name = prefix + v.Name
	}

	graphProto.Name = "body"
	return graphProto, nil
}

func inferWhile(o *Inference) error {
	if len(o.In) != len(o.Out)+1 {
		return fmt.Errorf("%d states in, %d out", len(o.In)-1, len(o.Out))
	}
	for i, out := range o.Out {
		out.value.dtype, out.value.shape = o.In[i+1].value.dtype, o.In[i+1].value.shape
	}
	return nil
}

// loop writes a While as Loop: the maximum number of iterations, no initial condition, the states.
func (w *writer) loop(graphProto *onnx.GraphProto, op *Op) error {
	n := &onnx.NodeProto{OpType: "Loop", Input: []string{w.name(op.In[0]), ""},
		Attribute: []*onnx.AttributeProto{op.Attrs["body"].proto("body")}}
	for _, x := range op.In[1:] {
		n.Input = append(n.Input, w.name(x))
	}

	for _, x := range op.Out {
		n.Output = append(n.Output, w.name(x))
	}

	graphProto.Node = append(graphProto.Node, n)
	return nil
}

// maxBodies bounds the iterations of a loop that FixSizes writes one after another. CUDA graphs have no loops.
const maxBodies = 100

// loop adds a loop that While made, for FixSizes: its bodies one after another if they are few. Iterations after the
// end of the loop change nothing.
func (f *File) loop(node *onnx.NodeProto, in []Node, scope *scope) (done bool, err error) {
	if !f.fixed || node.OpType != "Loop" || len(in) < 2 || in[1].OK() || len(node.Attribute) != 1 {
		return false, nil
	}

	body, states := node.Attribute[0].G, slices.Clone(in[2:])
	if len(body.GetInput()) != len(in) || !strings.HasPrefix(body.Input[0].Name, loopPrefix) ||
		!strings.HasSuffix(body.Input[0].Name, "/time") || len(body.Output) != len(states)+1 ||
		len(node.Output) > len(states) || !in[0].OK() || slices.Contains(states, Node{}) {
		return false, nil
	}

	if n := in[0].Ints(); len(n) == 1 && n[0].Static() && n[0].N <= maxBodies {
		for range n[0].N {
			if err := f.iterate(body, states, scope); err != nil {
				return false, err
			}
		}
	} else {
		states = f.Graph.while(in[0], body, states)
	}

	for i, name := range node.Output {
		if err := f.alias(name, states[i], scope); err != nil {
			return false, err
		}
	}

	return true, nil
}

// iterate replaces states by those after one more iteration.
func (f *File) iterate(body *onnx.GraphProto, states []Node, outer *scope) error {
	s := &scope{names: map[string]Node{}, label: outer.label, depth: outer.depth + 1}
	for i, n := range states {
		s.names[body.Input[2+i].Name] = n
	}

	if err := f.within(body, s); err != nil {
		return err
	}

	for i, out := range body.Output[1:] {
		n, ok := s.get(out.Name)
		if !ok {
			return fmt.Errorf("state %q of a loop is made by no node", out.Name)
		}
		states[i] = n
	}

	return nil
}
