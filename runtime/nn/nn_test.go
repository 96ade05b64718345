package nn_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// eval runs build on an input x and returns the elements of its result.
func eval(t *testing.T, x *tensor.Tensor, build func(g *graph.Graph, x graph.Node) graph.Node) *tensor.Tensor {
	t.Helper()
	g := graph.New()
	y := build(g, g.Input("x", graph.Float, graph.Static(x.Shape...)))
	model, err := graph.Model(graph.Output{Name: "y", Node: y})
	if err != nil {
		t.Fatal(err)
	}
	out, err := ort.RunOnce(context.Background(), model, ort.Options{}, tensor.Map{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return out["y"]
}

func equal(t *testing.T, got *tensor.Tensor, want ...float64) {
	t.Helper()
	if len(got.Data) != len(want) {
		t.Fatalf("%d numbers, want %d", len(got.Data), len(want))
	}
	for i, w := range want {
		if d := math.Abs(float64(got.Data[i]) - w); !(d < 1e-5) {
			t.Errorf("number %d is %g, want %g", i, got.Data[i], w)
		}
	}
}

func vector(g *graph.Graph, v ...float32) graph.Node { return g.Const(tensor.Of(v, len(v))) }

// By hand: [1,3,5,7] has mean 4 and variance 5, so (x-4)/√(5+4) = (x-4)/3, times 2 plus 1.
func TestLayerNorm(t *testing.T) {
	y := eval(t, tensor.Of([]float32{1, 3, 5, 7}, 1, 4), func(g *graph.Graph, x graph.Node) graph.Node {
		return nn.LayerNorm(x, vector(g, 2, 2, 2, 2), vector(g, 1, 1, 1, 1), 4)
	})
	equal(t, y, -1, 1-2.0/3, 1+2.0/3, 3)
}

// By definition: x/(1+e^(-1.702x)) and x(1+erf(x/√2))/2, of x + 1/2, times 3 plus 1.
func TestMLP(t *testing.T) {
	none := func(y, _ graph.Node, _ float64) graph.Node { return y }
	xs := []float64{-2, -0.3, 0, 1.5}
	for act, f := range map[string]func(float64) float64{
		nn.QuickGELU: func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) },
		nn.GELU:      func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 },
		nn.GELUTanh: func(x float64) float64 {
			return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2
		},
	} {
		in, want := tensor.New(4, 1), []float64{}
		for i, x := range xs {
			in.Data[i] = float32(x)
			want = append(want, 3*f(x+0.5)+1)
		}
		equal(t, eval(t, in, func(g *graph.Graph, x graph.Node) graph.Node {
			one, three := g.Const(tensor.Of([]float32{1}, 1, 1)), g.Const(tensor.Of([]float32{3}, 1, 1))
			return nn.MLP(x, one, vector(g, 0.5), three, vector(g, 1), act, none, none)
		}), want...)
	}
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(1, 1))
	if nn.MLP(x, x, x, x, x, "relu6", none, none); g.Err() == nil || !strings.Contains(g.Err().Error(), "quick_gelu") {
		t.Errorf("error %v", g.Err())
	}
}

// By hand, with d = 4, so scores are halved: the query e1 against keys 0 and 2·ln3·e1 scores 0 and ln 3, so weights
// 1/4 and 3/4; with the second key masked, 1 and 0.
func TestAttend(t *testing.T) {
	ln3 := float32(2 * math.Log(3))
	q := tensor.Of([]float32{1, 0, 0, 0, 1, 0, 0, 0}, 1, 2, 4)
	y := eval(t, q, func(g *graph.Graph, x graph.Node) graph.Node {
		k := g.Const(tensor.Of([]float32{0, 0, 0, 0, ln3, 0, 0, 0}, 1, 2, 4))
		v := g.Const(tensor.Of([]float32{4, 8}, 1, 2, 1))
		return nn.Attend(x, k, v, g.Const(tensor.Of([]float32{0, 0, 0, nn.MaskValue}, 2, 2)))
	})
	equal(t, y, 7, 4)
}

// Rows [2 sequences · 2 tokens, 2 parts · 2 heads · 1] with consecutive numbers: part 1 of head 0 is column 2,
// of head 1 column 3. MergeHeads joins the heads of each token again.
func TestHeadsAndRows(t *testing.T) {
	x := tensor.New(4, 4)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	split := eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node { return nn.SplitHeads(x, 2, 2, 2, 2)[1] })
	if !slices.Equal(split.Shape, []int{2, 2, 2, 1}) {
		t.Errorf("shape %v", split.Shape)
	}
	equal(t, split, 2, 6, 3, 7, 10, 14, 11, 15)
	equal(t, eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node {
		return nn.MergeHeads(nn.SplitHeads(x, 2, 2, 2,
			2)[0])
	}), 0, 1, 4, 5, 8, 9, 12, 13)
	equal(t, eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node {
		return nn.MergeHeads(nn.SplitHeads(x, 1, -1, 2,
			2)[0])
	}), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
}
