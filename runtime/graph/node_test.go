package graph_test

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// By hand, for logits [[0, ln 3, 0], [0, 0, ln 2]] of the classes 1 and 0: the softmax is 3/5 and 1/4, so the cross
// entropy is (ln 5/3 + ln 4)/2. For SigLIP's loss, -log σ of [[-0, ln 3, -0], [0, -0, -ln 2]] sums to ln 2 + ln 4/3 +
// ln 2 and ln 2 + ln 2 + ln 3.
func TestLosses(t *testing.T) {
	g := graph.New()
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	logits := g.Input("x", graph.Float, graph.Static(2, 3))
	label := g.Ints(1, 0)
	want := []float64{math.Log(20.0/3) / 2, math.Log(16.0/3*12) / 2}
	feed := tensor.Map{"x": tensor.Of([]float32{0, ln(3), 0, 0, 0, ln(2)}, 2, 3)}
	got := value(t, feed, graph.Stack(graph.CrossEntropy(logits, label), graph.SigmoidCrossEntropy(logits, label)))
	for i := range want {
		if math.Abs(float64(got[i])-want[i]) > 1e-6 {
			t.Errorf("loss %d is %v, want %v", i, got[i], want[i])
		}
	}
	hot := value(t, feed, graph.OneHot(label.Reshape(1, 2), 3).Add(logits.MulScalar(0)))
	if !slices.Equal(hot, []float32{0, 1, 0, 1, 0, 0}) {
		t.Errorf("one hot: %v", hot)
	}
}

// By hand: [3,4] has norm 5. The squares of [2,-1,3,-1,-1,1] sum to 17.
func TestNodeMethods(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(1, 2, 3))
	feed := tensor.Map{"x": tensor.Of([]float32{3, 0, 4, 0, 0, 2}, 1, 2, 3)}
	for want, n := range map[*tensor.Tensor]graph.Node{
		tensor.Of([]float32{.6, 0, .8, 0, 0, 1}, 1, 2, 3):  x.L2Normalize(),
		tensor.Of([]float32{5, 2}, 1, 2):                   x.Norm(-1),
		tensor.Of([]float32{3, 0, 0, 0, 4, 2}, 1, 3, 2):    x.T(),
		tensor.Of([]float32{3, 0, 6}, 1, 1, 3):             x.SumKeep(1),
		tensor.Of([]float32{1.5}, 1, 1, 1):                 x.MeanKeep(),
		tensor.Of([]float32{9}, 1):                         x.Sum(1, 2),
		tensor.Scalar(1.5):                                 x.Mean(),
		tensor.Of([]float32{0, 4, 0, 2}, 1, 2, 2):          x.Slice(2, 1, 3),
		tensor.Of([]float32{0, 0, 2}, 1, 1, 3):             x.Split(1, 1, 1)[1],
		tensor.Scalar(17.0 / 6):                            graph.MSE(x, g.Scalar(1)),
		tensor.Of([]float32{4, 1, 5, 1, 1, 3}, 1, 2, 3):    x.AddScalar(1),
		tensor.Of([]float32{-3, 0, -4, 0, 0, -2}, 1, 2, 3): x.MulScalar(-1),
	} {
		got := value(t, feed, n)
		for i, v := range want.Data {
			if len(got) != want.Len() || math.Abs(float64(got[i]-v)) > 1e-6 {
				t.Fatalf("%v gives %v, want %v", n, got, want.Data)
			}
		}
		if shape, _ := n.Shape().Ints(); !slices.Equal(shape, want.Shape) {
			t.Errorf("%v has shape %v, want %v", n, shape, want.Shape)
		}
	}
	if x.AddScalar(0) != x || x.MulScalar(1) != x || x.Cast(graph.Float) != x {
		t.Error("an operator without effect is added")
	}
	if x.Dim(0) != 1 || x.Dim(2) != 3 || x.Dim(-1) != 3 || x.Dim(-3) != 1 || g.Err() != nil {
		t.Errorf("sizes %d, %d, %d, %d: %v", x.Dim(0), x.Dim(2), x.Dim(-1), x.Dim(-3), g.Err())
	}
}

// A size that is not known, and axes that are not there, are errors of the graph. They name operator, axis and shape.
func TestNodeErrors(t *testing.T) {
	size := func(axis int) func(g *graph.Graph, x graph.Node) graph.Node {
		return func(_ *graph.Graph, x graph.Node) graph.Node {
			x.Dim(axis)
			return x
		}
	}
	for want, f := range map[string]func(g *graph.Graph, x graph.Node) graph.Node{
		"Input: axis 0 of shape [B,3] is not a known size":  size(0),
		"Input: axis 2 of shape [B,3] is not a known size":  size(2),
		"Input: axis -1 of shape [B,3] is not a known size": size(-3),
		"T: shape [3] has no two axes to swap": func(g *graph.Graph, _ graph.Node) graph.Node {
			return g.Ints(1, 2, 3).T()
		},
		"first": func(g *graph.Graph, _ graph.Node) graph.Node { return g.Fail("first").T() },
		`outputs "x" and "y" are of different graphs`: func(*graph.Graph, graph.Node) graph.Node {
			return graph.New().Scalar(1)
		},
		`output "y" has no node`: func(*graph.Graph, graph.Node) graph.Node { return graph.Node{} },
		"Exp: input Constant[] belongs to another graph": func(g *graph.Graph, _ graph.Node) graph.Node {
			return g.Apply(graph.Standard, "Exp", nil, graph.New().Scalar(1))
		},
		"input x is both FLOAT[B,3] and FLOAT[3]": func(g *graph.Graph, _ graph.Node) graph.Node {
			return g.Input("x", graph.Float, graph.Static(3))
		},
	} {
		g := graph.New()
		x := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3)})
		_, err := graph.Model(graph.Output{Name: "x", Node: x}, graph.Output{Name: "y", Node: f(g, x)})
		if err == nil || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
}

// An operator set above 18 is kept, with the IR version of the first ONNX release that has it (ONNX's table of
// releases).
func TestIRVersion(t *testing.T) {
	for set, want := range map[int64]int64{18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 11, 25: 12} {
		f := read(t, model(set, node("Neg", "x", "y")))
		m, err := graph.Model(f.Outputs...)
		if err != nil || m.IrVersion != want || m.OpsetImport[0].Version != set {
			t.Errorf("operator set %d became %v of version %d, want %d: %v", set, m.OpsetImport, m.IrVersion, want, err)
		}
	}
}

// What a file omits stays omitted; a second tower has no names of operators, which the first has; a value inside that
// has the name of an output gets another one.
func TestNamesInModels(t *testing.T) {
	norm := node("LayerNormalization", "x scale", "h")
	norm.Name = "norm"
	norm.Output = append(norm.Output, "", "deviation", "")
	m := model(18, norm, node("Neg", "h", "y"))
	m.Graph.Input = append(m.Graph.Input, info("scale", graph.Float, 4))
	f := read(t, m)
	y, _ := f.Output("y")
	x, _ := f.Node("x")
	scale, _ := f.Node("scale")
	g := graph.New()
	a, b := g.Input("a", graph.Float, graph.Static(2, 4)), g.Input("b", graph.Float, graph.Static(3, 4))
	to := g.Input("scale", graph.Float, graph.Static(4))
	var twice []graph.Node
	for _, in := range []graph.Node{a, b} {
		n, err := graph.Inline(g, []graph.Node{y}, map[graph.Node]graph.Node{x: in, scale: to})
		goldentest.NoError(t, err)
		twice = append(twice, n[0])
	}
	if got := len(twice[0].Op().In[0].Op().Out); got != 3 {
		t.Errorf("the norm has %d outputs, want 3", got)
	}
	out := orttest.Model(t, graph.Output{Name: "first", Node: twice[0].Exp()}, graph.Output{Name: "y",
		Node: twice[1].Exp()})
	names := []string{}
	for _, n := range out.Graph.Node {
		names = append(names, n.OpType+" "+n.Name)
	}
	slices.Sort(names)
	want := []string{"Exp ", "Exp ", "LayerNormalization ", "LayerNormalization norm", "Neg ", "Neg "}
	if !slices.Equal(names, want) {
		t.Errorf("operators %q, want %q", names, want)
	}
	if out.Graph.Output[1].Name != "y" {
		t.Errorf("outputs %v", out.Graph.Output)
	}
}

type source string

func (s source) String() string { return "from/" + string(s) }

// An input has the source that it was declared from, under the text of the source. Other nodes have none. The size -1
// of a placeholder is the batch's.
func TestSources(t *testing.T) {
	g := graph.New()
	x, plain := g.InputFrom(source("x"), graph.Float, graph.Static(2)), g.Input("y", graph.Float, graph.Static(2))
	if x.Name() != "from/x" || x.Source() != source("x") || x.Op().Placeholder() != nil {
		t.Errorf("%s from %v", x.Name(), x.Source())
	}
	held := g.Placeholder(struct{ X graph.Node }{x}, graph.Float, []int{-1, 2})
	if held.Shape().String() != "[B,2]" {
		t.Errorf("the placeholder has the shape %v", held.Shape())
	}
	for _, n := range []graph.Node{plain, x.Exp(), held} {
		if n.Source() != nil {
			t.Errorf("%v has the source %v", n, n.Source())
		}
	}
}
