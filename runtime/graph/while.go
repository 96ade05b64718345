package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

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
	proto := &onnx.AttributeProto{Name: "body", Type: onnx.AttributeProto_GRAPH, G: inner}
	nodes := slices.Clone(g.apply(whileDef, whileDef.Domain, whileDef.Kind, Attrs{"body": Attr(proto)}, len(all),
		append([]Node{g.Scalar64(n)}, all...)))[:len(init)]
	for i := range nodes {
		if !nodes[i].failed() {
			nodes[i] = nodes[i].Detach()
		}
	}
	return nodes
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

// loopBody returns the body. Its names begin with a digest of its content, so that no outer name is equal.
func loopBody(in []Node, out []Output) (*onnx.GraphProto, error) {
	m, err := Model(out...)
	if err != nil {
		return nil, err
	}
	if len(m.OpsetImport) > 1 || m.OpsetImport[0].Version > Opset {
		return nil, fmt.Errorf("the body uses operators of %v", m.OpsetImport[len(m.OpsetImport)-1])
	}
	g := m.Graph
	g.Input = nil // unused inputs are required too
	for _, n := range in {
		g.Input = append(g.Input, valueInfo(n.Name(), n))
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(g)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	prefix := "loop" + hex.EncodeToString(sum[:6]) + "/"
	rename := func(names []string) {
		for i := range names {
			if names[i] != "" {
				names[i] = prefix + names[i]
			}
		}
	}
	for _, n := range g.Node {
		rename(n.Input)
		rename(n.Output)
	}
	for _, t := range g.Initializer {
		t.Name = prefix + t.Name
	}
	for _, v := range append(g.Input, g.Output...) {
		v.Name = prefix + v.Name
	}
	g.Name = "body"
	return g, nil
}

func inferWhile(o *Inference) error {
	if len(o.In) != len(o.Out)+1 {
		return fmt.Errorf("%d states in, %d out", len(o.In)-1, len(o.Out))
	}
	for i, out := range o.Out {
		out.v.dtype, out.v.shape = o.In[i+1].v.dtype, o.In[i+1].v.shape
	}
	return nil
}

// loop writes a While as Loop: the maximum number of iterations, no initial condition, the states.
func (w *writer) loop(g *onnx.GraphProto, op *Op) error {
	n := &onnx.NodeProto{OpType: "Loop", Input: []string{w.name(op.In[0]), ""},
		Attribute: []*onnx.AttributeProto{op.Attrs["body"].proto("body")}}
	for _, x := range op.In[1:] {
		n.Input = append(n.Input, w.name(x))
	}
	for _, x := range op.Out {
		n.Output = append(n.Output, w.name(x))
	}
	g.Node = append(g.Node, n)
	return nil
}
