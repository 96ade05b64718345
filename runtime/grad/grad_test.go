package grad_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

type node = graph.Node

func modelOf(t *testing.T, outputs ...graph.Output) *onnx.ModelProto {
	t.Helper()
	return orttest.Model(t, outputs...)
}

func TestDetachStopsTheGradient(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(3))
	dx, err := grad.Of(x.Mul(x.Square().Detach()).Sum(), x) // x * const(x²): the gradient is x², not 3x²
	goldentest.NoError(t, err)
	got := run(t, modelOf(t, graph.Output{Name: "dx", Node: dx[0]}), tensor.Map{"x": tensor.Of([]float32{1, -2, 3},
		3)})["dx"]
	if !slices.Equal(got.Data, []float32{1, 4, 9}) {
		t.Errorf("gradient %v, want 1 4 9", got.Data)
	}
}

func TestIndependentInputsGetZeros(t *testing.T) {
	g := graph.New()
	x, y := g.Input("x", graph.Float, graph.Static(2)), g.Input("y", graph.Float, graph.Shape{graph.Sym("B"),
		graph.StaticDim(2)})
	dx := orttest.Gradients(t, x.Add(y.Detach().Sum()).Sum(), x, y)
	nan := float32(0) / tensor.New(1).Data[0]
	got := run(t, modelOf(t, graph.Output{Name: "copy", Node: y.Identity()}, graph.Output{Name: "dy", Node: dx[1]}),
		tensor.Map{"y": tensor.Of([]float32{1, nan, 3, 4, 5, 6}, 3, 2)})["dy"]
	if !slices.Equal(got.Shape, []int{3, 2}) || got.MaxAbs() != 0 || got.NonFinite() >= 0 {
		t.Errorf("gradient %v %v, want zeros [3 2]", got, got.Data)
	}
}

func TestTiesShareTheGradient(t *testing.T) {
	g := graph.New()
	x, y := g.Input("x", graph.Float, graph.Static(4)), g.Input("y", graph.Float, graph.Static(4))
	loss := x.Max(y).Sum().Add(g.Apply(graph.Standard, "ReduceMax", nil, x).Sum())
	d := orttest.Gradients(t, loss, x, y)
	got := run(t, modelOf(t, graph.Output{Name: "dx", Node: d[0]}, graph.Output{Name: "dy", Node: d[1]}),
		tensor.Map{"x": tensor.Of([]float32{1, 5, 5, 2}, 4), "y": tensor.Of([]float32{1, 6, 2, 3}, 4)})
	// By hand: both are equal at 0 (halves), y is larger at 1 and 3, x at 2; the maxima of x are at 1 and 2 (halves).
	if !slices.Equal(got["dx"].Data, []float32{0.5, 0.5, 1.5, 0}) || !slices.Equal(got["dy"].Data, []float32{0.5, 1, 0,
		1}) {
		t.Errorf("gradients %v and %v", got["dx"].Data, got["dy"].Data)
	}
}

// TestRepeatedRowsAddUp gathers one row very often on several threads: the gradient must contain every entry.
func TestRepeatedRowsAddUp(t *testing.T) {
	const n, width = 20000, 16
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, width))
	index := g.Input("i", graph.Int64, graph.Static(n))
	dx := orttest.Gradients(t, x.Rows(index).Sum(), x)
	s := orttest.Open(t, modelOf(t, graph.Output{Name: "dx", Node: dx[0]}), ort.Options{IntraThreads: 4})
	for range 5 {
		out, err := s.Run(t.Context(), tensor.Map{"i": tensor.OfInts(make([]int64, n), n)})
		goldentest.NoError(t, err)
		for i, v := range out["dx"].Data {
			if want := float32(n * (1 - i/width)); v != want {
				t.Fatalf("element %d: %v, want %v", i, v, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, 3))
	i := g.Input("i", graph.Int64, graph.Static(2))
	check := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
	_, err := grad.VJP([]node{g.Apply(graph.Standard, "Det", nil, x)}, []node{g.Scalar(1)}, x)
	check(err, "no gradient rule for operator Det")
	_, err = grad.VJP([]node{g.Apply("org.example", "Warp", nil, x)}, []node{g.Scalar(1)}, x)
	check(err, "no gradient rule for operator org.example.Warp")
	_, err = grad.Of(x, x)
	check(err, "the gradient of a node of shape [2,3]; it must be a scalar")
	_, err = grad.Of(x.Sum(), i)
	check(err, "Input[2] holds INT64: gradients are between floating-point values only")
	mirror := graph.Attrs{"mode": graph.Attr("mirror")}
	_, err = grad.Of(g.Apply(graph.Standard, "Pad", mirror, x, g.Ints(0, 1, 0, 1)).Sum(), x)
	check(err, "gradient of Pad: mode mirror is not supported")
	scales := g.Const(tensor.Of([]float32{1.2, 2}, 2)) // 2.4 rows are 2
	_, err = grad.Of(g.Apply(graph.Standard, "Resize", nil, x, node{}, scales).Sum(), x)
	check(err, "gradient of Resize: the scale 1.2 of axis 0, whose size stays 2, is not supported: give sizes")
	_, err = grad.VJP([]node{x.Neg()}, []node{g.Scalar(1)}, x)
	check(err, "a cotangent of shape [] for the output Neg[2,3]")
	top := g.ApplyN(graph.Standard, "TopK", nil, 2, x, g.Ints(1))
	_, err = grad.VJP(nil, nil, x)
	check(err, "0 outputs with 0 cotangents and 1 inputs")
	_, err = grad.VJP(top[:1], top, x)
	check(err, "1 outputs with 2 cotangents and 1 inputs")
	_, err = grad.VJP(top[:1], top[:1])
	check(err, "1 outputs with 1 cotangents and 0 inputs")
	line := g.Input("line", graph.Float, graph.Static(3))
	norm := g.ApplyN(graph.Standard, "LayerNormalization", nil, 2, line, line)
	_, err = grad.Of(norm[1].Sum(), line)
	check(err, "gradient of LayerNormalization: only its first output can be differentiated")
	losses := g.ApplyN(graph.Standard, "SoftmaxCrossEntropyLoss", nil, 2, x, i)
	_, err = grad.Of(losses[0].Add(losses[1].Sum()), x)
	check(err, "gradient of SoftmaxCrossEntropyLoss: only its first output can be differentiated")
	if _, err := grad.Of(norm[0].Sum(), line); err != nil { // of the smallest rank that it may have
		t.Error(err)
	}
	anything := g.Input("any", graph.Float, nil)
	_, err = grad.Of(g.Apply(graph.Standard, "GlobalMaxPool", nil, anything).Reshape(1), anything)
	check(err, "gradient of GlobalMaxPool: the rank of its input is not known, or below 3")
	g.Input("cotangent/taken", graph.Float, graph.Static(2, 3))
	const unnamed = "gradient: at least one output and one input must be named"
	for _, c := range []struct {
		of, wrt []string
		want    string
	}{
		{[]string{"a"}, nil, unnamed}, {nil, []string{"x"}, unnamed},
		{[]string{"b"}, []string{"z"}, `gradient: the outputs do not depend on an input "z"`},
		{[]string{"c"}, []string{"i"}, `gradient: input "i" holds INT64; only floating-point inputs have gradients`},
		{[]string{"d"}, []string{"x", "x"}, `gradient: input "x" is named twice`},
		{[]string{"taken"}, []string{"x"}, `gradient: the model has an input "cotangent/taken" already; rename it`},
	} {
		given := convert.Slice(c.of, func(name string) graph.Output { return graph.Output{Name: name, Node: x.Neg()} })
		_, err = grad.Pullback(given, c.wrt...)
		check(err, c.want)
	}
	g.Fail("first")
	_, err = grad.Of(x.Sum(), x)
	check(err, "first")
	_, err = grad.VJP([]node{x}, []node{x}, x)
	check(err, "first")
}

// TestGradientIsShared builds one gradient twice; the second time adds no operator.
func TestGradientIsShared(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, 3))
	loss := x.Softmax(-1).Log().Sum()
	a := orttest.Gradients(t, loss, x)
	b := orttest.Gradients(t, loss, x)
	if a[0] != b[0] {
		t.Errorf("%v and %v are two nodes", a[0], b[0])
	}
}

// exported is a model of another tool: y = relu(W x) with W in another file, n = Det(x), an integer k.
func exported(t *testing.T) *graph.File {
	t.Helper()
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("N"), graph.StaticDim(4)})
	k := g.Input("k", graph.Int64, graph.Static(1))
	w := g.Weight("w", graph.Float, graph.External{File: "weights.bin", Offset: 16, Length: 48}, 3, 4)
	m := orttest.Model(t, graph.Output{Name: "y", Node: x.Linear(w, node{}).ReLU()}, graph.Output{Name: "same",
		Node: k.Identity()},
		graph.Output{Name: "d", Node: g.Apply(graph.Standard, "Det", nil, x)})
	for _, p := range m.Graph.Node {
		p.Name = "layer/" + p.OpType
	}
	m.MetadataProps = []*onnx.StringStringEntryProto{{Key: "author", Value: "someone"}}
	b, err := proto.Marshal(m)
	goldentest.NoError(t, err)
	f, err := graph.Read(b)
	goldentest.NoError(t, err)
	return f
}

func TestFileKeepsWhatTheModelHolds(t *testing.T) {
	m, err := grad.VJPModel(exported(t), []string{"y"}, []string{"x"})
	goldentest.NoError(t, err)
	var names []string
	for _, v := range append(m.Graph.Input, m.Graph.Output...) {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "cotangent/y grad/x k x y" {
		t.Errorf("inputs and outputs: %s", got)
	}
	if len(m.MetadataProps) != 1 || m.MetadataProps[0].Value != "someone" {
		t.Errorf("metadata %v", m.MetadataProps)
	}
	w := m.Graph.Initializer[0]
	if e, err := onnx.ExternalOf(w); err != nil || w.Name != "w" || !onnx.IsExternal(w) || e.File != "weights.bin" {
		t.Errorf("weight %v, %v", w, err)
	}
}

// The gradient of the gradient of x^3 is 6x (docs/grad.md).
func TestGradientOfGradientFile(t *testing.T) {
	x := graph.New().Input("x", graph.Float, graph.Static(1))
	m := orttest.Model(t, graph.Output{Name: "y", Node: x.Square().Mul(x)})
	for _, target := range []string{"y", "grad/x"} {
		f, err := graph.ReadModel(m)
		goldentest.NoError(t, err)
		m, err = grad.VJPModel(f, []string{target}, []string{"x"})
		goldentest.NoError(t, err)
	}
	one := tensor.Of([]float32{1}, 1)
	in := tensor.Map{"x": tensor.Of([]float32{2}, 1), "cotangent/y": one, "cotangent/grad/x": one}
	if got := orttest.Run(t, m, "", in)["grad/grad/x"]; got.Data[0] != 12 {
		t.Errorf("%v, want 6x", got)
	}
}

func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ of, wrt, want string }{
		{"z", "x", `gradient: no output "z"; the model has y float[N,3], same int64[1], d float[?]`},
		{"y", "z", `gradient: no input "z"; the model has x float[N,4], k int64[1]`},
		{"y", "k", `gradient: input "k" holds integers, which have no gradient; the model has x float[N,4], ` +
			`k int64[1]`},
		{"same", "x", `gradient: output "same" holds INT64; only floating-point outputs have gradients`},
		{"d", "x", `no gradient rule for operator Det (node layer/Det)`},
	} {
		if _, err := grad.VJPModel(exported(t), []string{c.of}, []string{c.wrt}); err == nil || err.Error() != c.want {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
}

// A rule of an operator may return more gradients than there are inputs, also for those that are not there. What it
// gets wrong is an error: a needed gradient that is missing or of another shape, and what it reports itself.
func TestRules(t *testing.T) {
	same := func(o *graph.Inference) error { return o.Set(o.In[0].Shape()) }
	rule := func(kind string, vjp func(c *graph.Backward) []node) graph.Def {
		return graph.Def{Domain: "test", Kind: kind, MinInputs: 1, Infer: same, VJP: vjp}
	}
	graph.Register(
		rule("Generous", func(c *graph.Backward) []node {
			d := c.G().MulScalar(5)
			return []node{d, d, d, d}
		}),
		rule("Wide", func(c *graph.Backward) []node {
			wide := c.Graph().Input("wide", graph.Float, graph.Static(2, 4))
			return []node{wide, wide}
		}),
		rule("None", func(c *graph.Backward) []node { return []node{c.G(), {}} }),
		rule("Short", func(c *graph.Backward) []node { return []node{c.G()} }),
		graph.Def{Domain: "test", Kind: "Refusing", MinInputs: 1, Infer: same,
			Decompose: func(c *graph.Backward, _ []node) node { return c.FailNode("it refuses") }},
		graph.Def{Domain: "test", Kind: "Counted", MinInputs: 2, Infer: same,
			Decompose: func(_ *graph.Backward, in []node) node { return in[0].Mul(in[1].Cast(graph.Float)) }},
	)
	g := graph.New()
	x, z := g.Input("x", graph.Float, graph.Static(2, 3)), g.Input("z", graph.Float, graph.Static(2, 3))
	build := func(kind string, in ...node) ([]node, error) {
		return grad.Of(g.Apply("test", kind, nil, in...).Sum(), x, z)
	}
	d, err := build("Generous", x, node{}, z)
	goldentest.NoError(t, err)
	counted, err := build("Counted", x, g.Input("n", graph.Int64, graph.Static()))
	goldentest.NoError(t, err)
	got := run(t, modelOf(t, graph.Output{Name: "x", Node: d[0]}, graph.Output{Name: "z", Node: d[1]},
		graph.Output{Name: "counted", Node: counted[0]}), tensor.Map{"n": tensor.OfInts([]int64{7})})
	for name, want := range map[string]float32{"x": 5, "z": 5, "counted": 7} {
		if !slices.Equal(got[name].Data, slices.Repeat([]float32{want}, 6)) {
			t.Errorf("%s: %v, want %v", name, got[name].Data, want)
		}
	}
	for kind, want := range map[string]string{
		"Wide":     "gradient of test.Wide: it has shape [2,4] for input 0 of shape [2,3]",
		"None":     "gradient of test.None: the gradient of its input 1 is not supported",
		"Short":    "gradient of test.Short: the gradient of its input 1 is not supported",
		"Refusing": "gradient of test.Refusing: it refuses",
	} {
		if _, err := build(kind, x, z); err == nil || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
}
