package modules

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// valueOf runs the graph of a node on parameters.
func valueOf(t *testing.T, n graph.Node, params tensor.Map) *tensor.Tensor {
	t.Helper()
	in := tensor.Map{}
	for name, v := range params {
		in[method.Input{Kind: method.ParamInput, Name: name}.String()] = v
	}
	model, err := graph.Model(graph.Output{Name: "value", Node: n})
	goldentest.NoError(t, err)
	return orttest.Run(t, model, "", in)["value"]
}

func checkValues(t *testing.T, what string, got *tensor.Tensor, want ...float64) {
	t.Helper()
	for i, v := range want {
		if math.Abs(float64(got.Data[i])-v) > 5e-5 {
			t.Errorf("%s is %v, by hand %v", what, got.Data, want)
			return
		}
	}
}

// With Q, K and V the identity and O twice that, in the first of two blocks: the rows x (√3 ln 3, 0, 0) and 0 have
// the scores (ln 3, 0) and (0,0) with the rows y (1,0,0) and (0,1,0), so the weights (3/4,1/4) and (1/2,1/2). In the
// second block the rows 0 weigh the rows (2,0,0) and (0,2,0) alike.
func TestFuseByHand(t *testing.T) {
	a := CrossAttention("mix")
	params := a.Weights(3)
	if len(params) != 4 || params[0].Owner != method.Private || math.Abs(params[0].Std-1./3) > 1e-15 {
		t.Errorf("%+v", params)
	}
	s := method.NewScope(method.ClientSpec{}, params)
	x := float32(math.Sqrt(3) * math.Log(3))
	own := tensor.New(2, 2, 3)
	own.Data[0] = x
	shared := tensor.Of([]float32{1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 2, 0}, 2, 2, 3)
	one := tensor.Of([]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}, 3, 3)
	got := valueOf(t, a.Fuse(s, s.Graph().Const(own), s.Graph().Const(shared)), tensor.Map{"mix/q": one, "mix/k": one,
		"mix/v": one, "mix/o": tensor.Of([]float32{2, 0, 0, 0, 2, 0, 0, 0, 2}, 3, 3)})
	checkValues(t, "the mix", got, float64(x)+1.5, 0.5, 0, 1, 1, 0, 2, 2, 0, 2, 2, 0)
}

// (1,2) times the rows (1,1) and (0,3), and biases; the norm of (1,3) is (-1,1), times gains, plus biases.
func TestLayersByHand(t *testing.T) {
	s := method.NewScope(method.ClientSpec{}, append(Linear("l", 2, 2), LayerNorm("n", 2)...))
	row := func(a, b float32) *tensor.Tensor { return tensor.Of([]float32{a, b}, 1, 2) }
	checkValues(t, "the linear layer", valueOf(t, ApplyLinear(s, "l", s.Graph().Const(row(1, 2))),
		tensor.Map{"l/w": tensor.Of([]float32{1, 1, 0, 3}, 2, 2), "l/b": tensor.Of([]float32{10, 20}, 2)}), 13, 26)
	checkValues(t, "the layer norm", valueOf(t, ApplyLayerNorm(s, "n", s.Graph().Const(row(1, 3))),
		tensor.Map{"n/gain": tensor.Of([]float32{2, 4}, 2), "n/bias": tensor.Of([]float32{10, 20}, 2)}), 8, 24)
}

// Queries of width 4, rows of width 6, and feed-forward layers of 3 times 4, with a gate of as many.
func TestAttentionBlock(t *testing.T) {
	var got []string
	for _, p := range AttentionBlock("a", 4, 6, 3) {
		got = append(got, fmt.Sprint(p.Name, p.Shape))
	}
	const want = "a/norm/gain[4] a/norm/bias[4] a/q/w[4 4] a/q/b[4] a/k/w[4 6] a/k/b[4] a/v/w[4 6] a/v/b[4] " +
		"a/o/w[4 4] a/o/b[4] a/ff/norm/gain[4] a/ff/norm/bias[4] a/ff/in/w[24 4] a/ff/in/b[24] " +
		"a/ff/out/w[4 12] a/ff/out/b[4]"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// drawn of a layer with 4 inputs lies within 1/√4. Xavier's bound is √(6/(out+in)): 1 for a k of 4 times 2,
// √(6/8) for a q of 4 times 4, and √(6/16) where q, k and v of width 4 are one matrix of 12 rows.
func TestInitialValues(t *testing.T) {
	checkDrawn := func(m tensor.Map, name string, bound float64) {
		t.Helper()
		unit := method.DrawUniform(5, name, []int{1, m[name].Len()}).Data
		for i, v := range m[name].Data {
			if math.Abs(float64(v)-bound*float64(unit[i])) > 1e-7 || v == 0 {
				t.Errorf("%s: %v, drawn %v times %v", name, v, unit[i], bound)
			}
		}
	}
	for kv, bounds := range map[int][2]float64{2: {math.Sqrt(6. / 8), 1}, 4: {math.Sqrt(6. / 16), math.Sqrt(6. / 16)}} {
		m := tensor.Map{"other/w": tensor.New(2, 2)}
		for _, p := range AttentionBlock("a", 4, kv, 1) {
			m[p.Name] = tensor.New(p.Shape...)
		}
		InitLayers(5, m, "a")
		checkDrawn(m, "a/q/b", 1/math.Sqrt(4))
		checkDrawn(m, "a/k/w", 1/math.Sqrt(float64(kv)))
		checkDrawn(m, "a/k/b", 1/math.Sqrt(float64(kv)))
		InitAttention(5, m, "a")
		checkDrawn(m, "a/q/w", bounds[0])
		checkDrawn(m, "a/k/w", bounds[1])
		checkDrawn(m, "a/o/w", 0.5)
		checkDrawn(m, "a/ff/out/w", 0.5)
		if m["a/q/b"].MaxAbs() != 0 || m["a/norm/gain"].Data[3] != 1 || m["a/norm/bias"].Data[3] != 0 ||
			m["other/w"].MaxAbs() != 0 {
			t.Errorf("%v", m)
		}
	}
	InitAttention(5, tensor.Map{}, "absent")
}
