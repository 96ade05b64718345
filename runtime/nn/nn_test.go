package nn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// eval runs build on an input x and returns the elements of its result.
func eval(t *testing.T, x *tensor.Tensor, build func(g *graph.Graph, x graph.Node) graph.Node) *tensor.Tensor {
	t.Helper()
	g := graph.New()
	y := build(g, g.Input("x", graph.Float, graph.Static(x.Shape...)))
	model := orttest.Model(t, graph.Output{Name: "y", Node: y})
	return orttest.Run(t, model, "", tensor.Map{"x": x})["y"]
}

func equal(t *testing.T, got *tensor.Tensor, want ...float64) {
	t.Helper()
	if len(got.Data) != len(want) {
		t.Fatalf("%d numbers, want %d", len(got.Data), len(want))
	}
	for i, w := range want {
		if d := math.Abs(float64(got.Data[i]) - w); !(d < 1e-5*max(1, math.Abs(w))) {
			t.Errorf("number %d is %g, want %g", i, got.Data[i], w)
		}
	}
}

func vector(g *graph.Graph, v ...float32) graph.Node { return g.Const(tensor.Of(v, len(v))) }

// By hand: [1,3,5,7] has mean 4 and variance 5, so (x-4)/√(5+4) = (x-4)/3, times 2 plus 1. The rows do not mix.
func TestLayerNorm(t *testing.T) {
	y := eval(t, tensor.Of([]float32{1, 3, 5, 7, 9, 9, 9, 9}, 1, 2, 4), func(g *graph.Graph, x graph.Node) graph.Node {
		return nn.LayerNorm(x, vector(g, 2, 2, 2, 2), vector(g, 1, 1, 1, 1), 4)
	})
	equal(t, y, -1, 1-2.0/3, 1+2.0/3, 3, 1, 1, 1, 1)
}

// By hand: 2 [1,2] [[1,0],[1,1]]ᵀ = [2,6], plus 3 [1,-1]. A transposed weight takes no operator of its own.
func TestLinear(t *testing.T) {
	x := tensor.Of([]float32{1, 2}, 1, 2)
	equal(t, eval(t, x, func(g *graph.Graph, x graph.Node) graph.Node {
		return nn.Linear(x, g.Const(tensor.Of([]float32{1, 0, 1, 1}, 2, 2)), vector(g, 1, -1), 2, 3)
	}), 5, 3)
	equal(t, eval(t, x, func(g *graph.Graph, x graph.Node) graph.Node {
		w := g.Const(tensor.Of([]float32{1, 1, 0, 1}, 2, 2))
		y := nn.Linear(x, w.T(), graph.Node{}, 1, 7)
		if y.Op().In[1] != w {
			t.Errorf("the weight is %v", y.Op().In[1])
		}
		return y
	}), 1, 3)
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

// The kernel computes QuickGELU of widths that are multiples of its own, in graphs that may have it: by definition, of
// x + 1/2 in each of the columns, which are summed.
func TestMLPByKernel(t *testing.T) {
	none := func(y, _ graph.Node, _ float64) graph.Node { return y }
	for _, c := range []struct {
		act     string
		width   int
		allowed bool
		want    bool
	}{
		{nn.QuickGELU, 16, true, true}, {nn.QuickGELU, 32, true, true}, {nn.QuickGELU, 15, true, false},
		{nn.QuickGELU, 16, false, false}, {nn.GELU, 16, true, false},
	} {
		used := false
		y := eval(t, tensor.Of([]float32{1.5}, 1, 1), func(g *graph.Graph, x graph.Node) graph.Node {
			if c.allowed {
				g.UseKernels(graph.CPUKernels)
			}
			ones := slices.Repeat([]float32{1}, c.width)
			up, half := g.Const(tensor.Of(ones, c.width, 1)), vector(g, slices.Repeat([]float32{0.5}, c.width)...)
			return nn.MLP(x, up, half, g.Const(tensor.Of(ones, 1, c.width)), vector(g, 0), c.act, none,
				func(y, a graph.Node, _ float64) graph.Node {
					used = a.Op().Kind == "BiasQuickGelu"
					return y
				})
		})
		want := 2 / (1 + math.Exp(-1.702*2))
		if c.act == nn.GELU {
			want = 1 + math.Erf(math.Sqrt2)
		}
		if equal(t, y, float64(c.width)*want); used != c.want {
			t.Errorf("%+v: by the kernel: %v", c, used)
		}
	}
}

// By hand, with d = 16, so scores are divided by 4: the query e1 against the keys 0, 4·ln3·e1 and 0 of values 4, 8
// and 0 has weights of 1 to 3 to 1. A row attends to the rows of both of its spans. A second sequence has twice the
// values.
func TestAttentionByKernels(t *testing.T) {
	const d = 16
	rows := tensor.New(6, 3*d)
	for i, v := range []float32{4, 8, 0, 8, 16, 0} {
		row := rows.Data[3*d*i:]
		row[0], row[d] = 1, 0
		for j := range d {
			row[2*d+j] = v
		}
	}
	rows.Row(1).Data[d], rows.Row(4).Data[d] = float32(4*math.Log(3)), float32(4*math.Log(3))
	y := eval(t, rows, func(_ *graph.Graph, x graph.Node) graph.Node {
		return nn.PackedAttention(x, [][5]int{{0, 1, 0, 0, 0}, {0, 2, 2, 2, 1}, {0, 1, 1, 3, 2}}, 1)
	})
	equal(t, y, slices.Concat(slices.Repeat([]float64{4}, d), slices.Repeat([]float64{7}, d),
		slices.Repeat([]float64{28.0 / 5}, d))...)
	for _, attention := range []func(graph.Node, int, int) graph.Node{nn.SequenceAttention, nn.FusedAttention} {
		y = eval(t, rows, func(_ *graph.Graph, x graph.Node) graph.Node { return attention(x, 3, 1) })
		equal(t, y, slices.Concat(slices.Repeat([]float64{28.0 / 5}, 3*d), slices.Repeat([]float64{56.0 / 5}, 3*d))...)
	}
	for most, want := range map[int]int{1: 16, 16: 16, 17: 32, 32: 32} {
		g := graph.New()
		x := g.Input("x", graph.Float, graph.Static(40, 3*d))
		spans := slices.Repeat([][5]int{{0, 1}}, 40)
		spans[3] = [5]int{1, 1 + most/2, 20, 20 + most - most/2, 3}
		if keys := nn.PackedAttention(x, spans, 1).Op().Attrs.Int("keys", 0); keys != want {
			t.Errorf("%d rows need %d keys, want %d", most, keys, want)
		}
	}
}

// By hand: log(e^0 + e^ln3) = log 4, and 1000 + log 2 without an overflow. Unbind takes the rows apart.
func TestLogSumExpAndUnbind(t *testing.T) {
	x := tensor.Of([]float32{0, float32(math.Log(3)), 1000, 1000}, 2, 2)
	y := eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node { return nn.LogSumExp(x, 1) })
	equal(t, y, math.Log(4), 1000+math.Log(2))
	if !slices.Equal(y.Shape, []int{2, 1}) {
		t.Errorf("shape %v", y.Shape)
	}
	equal(t, eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node {
		rows := nn.Unbind(x)
		return rows[1].Sub(rows[0])
	}), 1000, 1000-math.Log(3))
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
		return nn.MergeHeads(nn.SplitHeads(x, 2, 2, 2, 2)[0])
	}), 0, 1, 4, 5, 8, 9, 12, 13)
	y := eval(t, x, func(_ *graph.Graph, x graph.Node) graph.Node {
		return nn.MergeHeads(nn.SplitHeads(x, 1, -1, 2, 2)[0])
	})
	if !slices.Equal(y.Data, x.Data) || !slices.Equal(y.Shape, x.Shape) {
		t.Errorf("got %v%v", y.Data, y.Shape)
	}
}
