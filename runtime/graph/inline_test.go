package graph_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// chosen is a model of an If: y is h+h for a true flag, and -h, which has the name y there, otherwise, for h = -x.
// Inside the first branch another If with a constant condition selects.
func chosen(condition *onnx.TensorProto) *onnx.ModelProto {
	attribute := func(name string, b *onnx.GraphProto) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_GRAPH, G: b}
	}
	branch := func(out string, constants []*onnx.TensorProto, nodes ...*onnx.NodeProto) *onnx.GraphProto {
		return &onnx.GraphProto{Node: nodes, Initializer: constants,
			Output: []*onnx.ValueInfoProto{info(out, onnx.TensorProto_FLOAT)}}
	}
	inner := node("If", "always", "sum", attribute("then_branch", branch("twice", nil, node("Add", "h h", "twice"))),
		attribute("else_branch", branch("h", nil)))
	inner.Name = "inner"
	always := &onnx.TensorProto{Name: "always", DataType: int32(graph.Bool), RawData: []byte{1}}
	outer := node("If", "flag", "y", attribute("else_branch", branch("y", nil, node("Neg", "h", "y"))),
		attribute("then_branch", branch("sum", []*onnx.TensorProto{always}, inner)))
	outer.Name = "outer"
	m := model(18, node("Neg", "x", "h"), outer)
	if condition == nil {
		m.Graph.Input = append(m.Graph.Input, info("flag", onnx.TensorProto_BOOL))
	} else {
		m.Graph.Initializer = append(m.Graph.Initializer, condition)
	}
	return m
}

func flag(v byte) *onnx.TensorProto {
	return &onnx.TensorProto{Name: "flag", DataType: int32(graph.Bool), RawData: []byte{v}}
}

// A constant condition selects a branch when a file is read, or when it becomes constant as the file is inlined: by
// hand, x = 3 gives -6 or 3.
func TestBranches(t *testing.T) {
	x := tensor.New(2, 3, 4)
	x.Data[5] = 3
	for v, want := range map[byte]float32{1: -6, 0: 3} {
		f := read(t, chosen(flag(v)))
		y, _ := f.Output("y")
		if got := value(t, tensor.Map{"x": x}, y); got[5] != want || y.Shape().String() != "[2,3,4]" {
			t.Errorf("flag %d, read: %v of %v, want %v", v, got[5], y, want)
		}
		f = read(t, chosen(nil))
		y, _ = f.Output("y")
		in, _ := f.Node("x")
		open, _ := f.Node("flag")
		other := read(t, model(18, &onnx.NodeProto{OpType: "Identity", Input: []string{"x"}, Output: []string{"y"}}))
		g := other.Graph
		constant, err := graph.Inline(g, []graph.Node{f.Graph.Ints(int(v)).Slice(0, 0, 1).Squeeze(0)}, nil)
		goldentest.NoError(t, err)
		to := g.Input("x", graph.Float, graph.Static(2, 3, 4))
		got, err := graph.Inline(g, []graph.Node{y, in}, map[graph.Node]graph.Node{in: to, open: constant[0]})
		if err != nil || got[1] != to {
			t.Fatalf("%v, %v", got, err)
		}
		if out := value(t, tensor.Map{"x": x}, got[0]); out[5] != want || got[0].Name() == "\x000" {
			t.Errorf("flag %d, inlined: %v, want %v", v, out[5], want)
		}
	}
}

func TestBranchErrors(t *testing.T) {
	build := func(m *onnx.ModelProto) []*onnx.AttributeProto { return m.Graph.Node[1].Attribute }
	for want, change := range map[string]func(m *onnx.ModelProto){
		"If (node outer): it has no then_branch": func(m *onnx.ModelProto) {
			m.Graph.Node[1].Attribute = build(m)[:1]
		},
		"its then_branch has 1 outputs, not 2": func(m *onnx.ModelProto) {
			m.Graph.Node[1].Output = []string{"y", "z"}
		},
		`output "none" of its then_branch is made by no node`: func(m *onnx.ModelProto) {
			build(m)[1].G.Output[0].Name = "none"
		},
		`Add (node outer/inner/deep): input "none" is made by no earlier node`: func(m *onnx.ModelProto) {
			deep := build(m)[1].G.Node[0].Attribute[0].G.Node[0]
			deep.Name, deep.Input[1] = "deep", "none"
		},
		"branches make more than 131072 operators": func(m *onnx.ModelProto) {
			build(m)[1].G.Node = append(build(m)[1].G.Node, make([]*onnx.NodeProto, 1<<17)...)
			for i, n := range build(m)[1].G.Node {
				if n == nil {
					build(m)[1].G.Node[i] = node("Neg", "h", fmt.Sprint("n", i))
				}
			}
		},
		"": func(m *onnx.ModelProto) {
			inner := build(m)[1].G.Node[0].Attribute[0].G
			for range 62 {
				inner = &onnx.GraphProto{Output: inner.Output, Node: []*onnx.NodeProto{node("If", "always", "twice",
					&onnx.AttributeProto{Name: "then_branch", Type: onnx.AttributeProto_GRAPH, G: inner})}}
			}
			build(m)[1].G.Node[0].Attribute[0].G = inner
		},
	} {
		m := chosen(flag(1))
		change(m)
		if _, err := graph.ReadModel(m); (err == nil) != (want == "") || err != nil &&
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
}

// Half precision becomes float32: constants, casts and results. By hand: (3 + 1.5) as half precision is 4.5.
func TestInlineOfHalfPrecision(t *testing.T) {
	m := model(18, node("Cast", "x", "h", integer("to", int64(graph.Half))), node("Add", "h c", "s"),
		node("Relu", "s", "y"))
	m.Graph.Node[2].Name = "last"
	m.Graph.Initializer = []*onnx.TensorProto{{Name: "c", DataType: int32(graph.Half), Dims: []int64{1},
		RawData: []byte{0, 0x3e}}}
	f := read(t, m)
	y, _ := f.Output("y")
	in, _ := f.Node("x")
	if y.DType() != graph.Half {
		t.Errorf("the model computes in %v", y.DType())
	}
	g := graph.New()
	to := g.Input("x", graph.Float, graph.Static(1))
	got, err := graph.Inline(g, []graph.Node{y}, map[graph.Node]graph.Node{in: to})
	goldentest.NoError(t, err)
	if out := value(t, tensor.Map{"x": tensor.Of([]float32{3}, 1)}, got[0]); got[0].DType() != graph.Float ||
		out[0] != 4.5 || got[0].Op().Name != "last" || got[0].Shape().String() != "[1]" {
		t.Errorf("%v of %v (node %s), want 4.5", out, got[0], got[0].Op().Name)
	}
	for _, op := range graph.Reachable(got...) {
		if op.Kind == "Cast" && op.Attrs.Int("to", 0) != int(graph.Float) {
			t.Errorf("%s remains", op.Label())
		}
	}
	if _, err := graph.Inline(graph.New(), []graph.Node{y}, nil); err == nil ||
		err.Error() != `Input: the input "x" has no replacement` {
		t.Errorf("error %v", err)
	}
}

// atRunTime is chosen without the inner If, and its branches.
func atRunTime() (*onnx.ModelProto, []*onnx.AttributeProto) {
	m := chosen(nil)
	branches := m.Graph.Node[1].Attribute
	branches[0].G.Name, branches[1].G.Name = "no", "yes"
	branches[1].G.Initializer, branches[1].G.Node = nil, []*onnx.NodeProto{node("Add", "h h", "sum")}
	return m, branches
}

// A branch that is chosen at run time stays, with the outer values that it reads, however often its file is inlined,
// and after a transform of these values. By hand: h is -x, y is h+h if the flag is set, and else -h.
func TestInlineOfABranch(t *testing.T) {
	m, _ := atRunTime()
	open := read(t, m)
	y, _ := open.Output("y")
	in, _ := open.Node("x")
	at, _ := open.Node("flag")
	g := graph.New()
	x, flag := g.Input("x", graph.Float, graph.Static(1)), g.Input("flag", graph.Bool, graph.Static())
	inlined := func(x graph.Node) graph.Node {
		out, err := graph.Inline(g, []graph.Node{y}, map[graph.Node]graph.Node{in: x, at: flag})
		goldentest.NoError(t, err)
		return out[0]
	}
	once := inlined(x)
	if again := inlined(x); again != once {
		t.Errorf("the same values make %v and %v", once, again)
	}
	twice := once.Add(inlined(x.MulScalar(10))) // 11 times y
	scaled := graph.Transform([]graph.Node{twice}, func(op *graph.Op, in []graph.Node) []graph.Node {
		if op.Kind == "Neg" {
			return []graph.Node{in[0].MulScalar(-100)}
		}
		return nil
	})[0]
	for flag, want := range map[int64]float32{1: -2 * 3 * 11, 0: 3 * 11} {
		in := tensor.Map{"x": tensor.Of([]float32{3}, 1), "flag": tensor.OfInts([]int64{flag})}
		m := orttest.Model(t, graph.Output{Name: "y", Node: twice}, graph.Output{Name: "scaled", Node: scaled})
		got, _ := orttest.RunFixed(t, m, "", in) // no device captures a branch
		if a, b := got["y"].Data[0], got["scaled"].Data[0]; a != want || b != 100*want {
			t.Errorf("flag %d: %v and, for h 100 times, %v, want %v", flag, a, b, want)
		}
	}
}

// Branches of half precision get values of their type, and their output is float32 like every other: by hand, x = 3
// gives -6 or 3.
func TestInlineOfABranchOfHalfPrecision(t *testing.T) {
	m, branches := atRunTime()
	for _, list := range [][]*onnx.ValueInfoProto{m.Graph.Input[:1], m.Graph.Output, branches[0].G.Output,
		branches[1].G.Output} {
		for _, v := range list {
			v.Type.GetTensorType().ElemType = int32(graph.Half)
		}
	}
	f := read(t, m)
	y, _ := f.Output("y")
	in, _ := f.Node("x")
	at, _ := f.Node("flag")
	g := graph.New()
	x, flag := g.Input("x", graph.Float, graph.Static(1)), g.Input("flag", graph.Bool, graph.Static())
	out, err := graph.Inline(g, []graph.Node{y}, map[graph.Node]graph.Node{in: x, at: flag})
	goldentest.NoError(t, err)
	m = orttest.Model(t, graph.Output{Name: "y", Node: out[0]})
	for flag, want := range map[int64]float32{1: -6, 0: 3} {
		got, _ := orttest.RunFixed(t, m, "", tensor.Map{"x": tensor.Of([]float32{3}, 1),
			"flag": tensor.OfInts([]int64{flag})})
		if out[0].DType() != graph.Float || got["y"].Data[0] != want {
			t.Errorf("flag %d: %v of type %v, want %v", flag, got["y"].Data, out[0].DType(), want)
		}
	}
}

// An operator whose subgraphs read no outer value keeps its type if what it is made of changes.
func TestTransformOfABranchOfConstants(t *testing.T) {
	constant := func(name string, v float32) *onnx.GraphProto {
		return &onnx.GraphProto{Name: name, Output: []*onnx.ValueInfoProto{info("c", onnx.TensorProto_FLOAT)},
			Initializer: []*onnx.TensorProto{{Name: "c", DataType: int32(graph.Float), Dims: []int64{1},
				FloatData: []float32{v}}}}
	}
	attribute := func(name string, b *onnx.GraphProto) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_GRAPH, G: b}
	}
	m := model(18, node("Not", "flag", "not"), node("If", "not", "y", attribute("then_branch", constant("yes", 1)),
		attribute("else_branch", constant("no", 2))))
	m.Graph.Input = []*onnx.ValueInfoProto{info("flag", onnx.TensorProto_BOOL)}
	f := read(t, m)
	y, _ := f.Output("y")
	changed := graph.Transform([]graph.Node{y}, func(op *graph.Op, in []graph.Node) []graph.Node {
		if op.Kind == "Not" {
			return in
		}
		return nil
	})[0]
	if changed == y || changed.DType() != graph.Float {
		t.Errorf("%v of type %v", changed, changed.DType())
	}
}

// A node of a graph with an own gradient is the value that it was made of, and has that gradient; graphs that differ
// only in the gradient have different signatures.
func TestWithGradient(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2))
	own := func(key string, factor float64) graph.Node {
		return graph.WithGradient(x.Mul(x), key, func(c *graph.Backward) []graph.Node {
			return []graph.Node{c.G().Mul(c.In[1]).MulScalar(factor)}
		}, x)
	}
	y := own("three", 3)
	dx := orttest.Gradients(t, y.Sum(), x)
	in := tensor.Map{"x": tensor.Of([]float32{1, -2}, 2)}
	if got := value(t, in, y); !slices.Equal(got, []float32{1, 4}) {
		t.Errorf("x*x is %v", got)
	}
	if got := value(t, in, dx[0]); !slices.Equal(got, []float32{3, -6}) {
		t.Errorf("its gradient is %v, the rule says 3x", got)
	}
	var sums [][32]byte
	for _, n := range []graph.Node{y, own("three", 3), own("four", 4), x.Mul(x)} {
		sum, err := graph.Signature(graph.Output{Name: "y", Node: n})
		goldentest.NoError(t, err)
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] || sums[0] == sums[2] || sums[0] == sums[3] {
		t.Errorf("signatures %x", sums)
	}
}

// Transforms see every operator once, with its new inputs; what they return takes its place.
func TestInlineWith(t *testing.T) {
	f := read(t, model(18, node("Neg", "x", "h"), node("Exp", "h", "e"), node("Add", "e h", "y")))
	y, _ := f.Output("y")
	x, _ := f.Node("x")
	g := graph.New()
	to, seen := g.Input("x", graph.Float, graph.Static(2)), ""
	got, err := graph.InlineWith(g, []graph.Node{y}, map[graph.Node]graph.Node{x: to},
		func(op *graph.Op, in []graph.Node, apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
			if seen += op.Kind + " "; op.Kind == "Exp" {
				return []graph.Node{in[0].MulScalar(10)}, nil
			}
			return apply(in)
		})
	goldentest.NoError(t, err)
	out := value(t, tensor.Map{"x": tensor.Of([]float32{1, -2}, 2)}, got[0])
	if !slices.Equal(out, []float32{-11, 22}) || seen != "Neg Exp Add " {
		t.Errorf("%v by %s, want -11 and 22", out, seen)
	}
	_, err = graph.InlineWith(g, []graph.Node{y}, map[graph.Node]graph.Node{x: to},
		func(*graph.Op, []graph.Node, func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
			return nil, fmt.Errorf("refused")
		})
	if err == nil || err.Error() != "Neg: refused" {
		t.Errorf("error %v", err)
	}
	g.Fail("broken before")
	if _, err = graph.Inline(g, []graph.Node{y}, map[graph.Node]graph.Node{x: to}); err == nil ||
		err.Error() != "broken before" {
		t.Errorf("error %v", err)
	}
}

// IsScalar knows a single number or boolean of any type; nothing else is one.
func TestScalars(t *testing.T) {
	le := binary.LittleEndian
	proto := func(t graph.DType, raw []byte, dims ...int64) *graph.Literal {
		return &graph.Literal{Proto: &onnx.TensorProto{DataType: int32(t), RawData: raw, Dims: dims}}
	}
	float := le.AppendUint32(nil, math.Float32bits(1))
	for i, c := range []struct {
		l    *graph.Literal
		want bool
	}{
		{&graph.Literal{Tensor: tensor.Of([]float32{1}, 1)}, true}, {&graph.Literal{Tensor: tensor.Scalar(2)}, false},
		{&graph.Literal{Tensor: tensor.OfInts([]int64{1})}, true},
		{&graph.Literal{Tensor: tensor.OfInts([]int64{2})}, false},
		{&graph.Literal{Tensor: tensor.Of([]float32{1, 1}, 2)}, false},
		{&graph.Literal{Tensor: tensor.OfInts([]int64{1, 1}, 2)}, false},
		{proto(graph.Float, float), true}, {proto(graph.Float, float, 1, 1), true},
		{proto(graph.Float, le.AppendUint32(nil, math.Float32bits(2))), false},
		{proto(graph.Float, append(float, float...), 2), false},
		{proto(graph.Double, le.AppendUint64(nil, math.Float64bits(1))), true},
		{proto(graph.Double, le.AppendUint64(nil, math.Float64bits(2))), false},
		{proto(graph.Bool, []byte{2}), true}, {proto(graph.Bool, []byte{0}), false},
		{proto(graph.Int32, le.AppendUint32(nil, 1)), true}, {proto(graph.Int64, le.AppendUint64(nil, 1)), true},
		{proto(graph.Int64, le.AppendUint64(nil, 3)), false}, {proto(graph.Half, []byte{0, 0x3c}), false},
	} {
		if c.l.IsScalar(1) != c.want {
			t.Errorf("%d: is 1: %v", i, !c.want)
		}
	}
	at := graph.External{File: "weights.bin", Offset: 16, Length: 4}
	far := graph.New().Weight("w", graph.Float, at, 1).Op().Literal()
	if got, ok := far.ExternalPlace(); !ok || got != at || far.IsScalar(1) {
		t.Errorf("place %v, %v", got, ok)
	}
	if _, ok := proto(graph.Float, float).ExternalPlace(); ok {
		t.Error("a constant in memory has a place in a file")
	}
}
