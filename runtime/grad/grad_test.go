package grad_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

type node = graph.Node

func modelOf(t *testing.T, outputs ...graph.Output) *onnx.ModelProto {
	t.Helper()
	b, err := graph.Model(outputs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDetachStopsTheGradient(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(3))
	dx, err := grad.Of(x.Mul(x.Square().Detach()).Sum(), x) // x * const(x²): the gradient is x², not 3x²
	if err != nil {
		t.Fatal(err)
	}
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
	dx, err := grad.Of(x.Add(y.Detach().Sum()).Sum(), x, y)
	if err != nil {
		t.Fatal(err)
	}
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
	d, err := grad.Of(loss, x, y)
	if err != nil {
		t.Fatal(err)
	}
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
	dx, err := grad.Of(x.Rows(index).Sum(), x)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.NewSession(modelOf(t, graph.Output{Name: "dx", Node: dx[0]}), ort.Options{IntraThreads: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 5 {
		out, err := s.Run(t.Context(), tensor.Map{"i": tensor.OfInts(make([]int64, n), n)})
		if err != nil {
			t.Fatal(err)
		}
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
	_, err = grad.VJP([]node{x.Neg()}, []node{g.Scalar(1)}, x)
	check(err, "a cotangent of shape [] for the output Neg[2,3]")
}

// TestGradientIsShared builds one gradient twice; the second time adds no operator.
func TestGradientIsShared(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, 3))
	loss := x.Softmax(-1).Log().Sum()
	a, err := grad.Of(loss, x)
	if err != nil {
		t.Fatal(err)
	}
	b, err := grad.Of(loss, x)
	if err != nil {
		t.Fatal(err)
	}
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
	m, err := graph.Model(graph.Output{Name: "y", Node: x.Linear(w, node{}).ReLU()}, graph.Output{Name: "same",
		Node: k.Identity()},
		graph.Output{Name: "d", Node: g.Apply(graph.Standard, "Det", nil, x)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Graph.Node {
		p.Name = "layer/" + p.OpType
	}
	m.MetadataProps = []*onnx.StringStringEntryProto{{Key: "author", Value: "someone"}}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	f, err := graph.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFileKeepsWhatTheModelHolds(t *testing.T) {
	m, err := grad.VJPModel(exported(t), []string{"y"}, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range append(m.Graph.Input, m.Graph.Output...) {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "cotangent/y grad/x k x" {
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
