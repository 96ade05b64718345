package ops_test

import (
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// fourBits is MatMulNBits over K = 32, N = 3 and blocks of 16, with constant weights.
func fourBits(b *bench, x, scales node, zero bool) node {
	v := make([]int64, 3*2*8)
	for i := range v {
		v[i] = int64(37*i) % 256
	}
	in := []node{x, b.Const(tensor.OfInts(v, 3, 2, 8)).Cast(graph.Uint8), scales}
	if zero {
		in = append(in, b.Ints(0x35, 0xa8, 0x7c).Cast(graph.Uint8))
	}
	return b.Apply(graph.Microsoft, "MatMulNBits", attrs{"K": graph.Attr(32), "N": graph.Attr(3), "bits": graph.Attr(4),
		"block_size": graph.Attr(16)}, in...)
}

func init() {
	scales := func(b *bench) node { return b.Const(tensor.Of([]float32{0.1, 0.2, -0.3, 0.4, 0.05, 0.15}, 6)) }
	integers := func(b *bench, sizes ...int) node {
		v := make([]int64, tensor.Size(sizes))
		for i := range v {
			v[i] = int64(i*7%19 - 9)
		}
		return b.Const(tensor.OfInts(v, sizes...)).Cast(graph.DType(3)) // int8
	}
	gradients(
		gradientCase{graph.Microsoft + ".MatMulNBits", "symmetric", one(func(b *bench) node {
			return fourBits(b, b.x("x", 2, 32), scales(b), false)
		}), 0},
		gradientCase{graph.Microsoft + ".MatMulNBits", "zero points", one(func(b *bench) node {
			return fourBits(b, b.x("x", 2, 2, 32), scales(b), true)
		}), 0},
		gradientCase{"DequantizeLinear", "of a tensor", one(func(b *bench) node {
			w := b.op("DequantizeLinear", nil, integers(b, 4, 3), b.x("scale"), b.Scalar64(2).Cast(graph.DType(3)))
			return b.x("x", 2, 4).MatMul(w)
		}), 0},
		gradientCase{"DequantizeLinear", "of an axis", one(func(b *bench) node {
			w := b.op("DequantizeLinear", attrs{"axis": graph.Attr(0)}, integers(b, 4, 3), b.x("scale", 4))
			return b.x("x", 2, 4).MatMul(w)
		}), 0},
	)
}

// Weights of 4 bits by hand: the byte 0x5a is 10 and then 5, so 2 and -3 around 8, times the scale; 1·2 + 10·(-3) =
// -28.
func TestMatMulNBitsByHand(t *testing.T) {
	g := graph.New()
	b := make([]int64, 8)
	for i := range b {
		b[i] = 0x88 // zeros
	}
	b[0] = 0x5a
	x := g.Input("x", graph.Float, graph.Static(1, 16))
	y := g.Apply(graph.Microsoft, "MatMulNBits", attrs{"K": graph.Attr(16), "N": graph.Attr(1), "bits": graph.Attr(4),
		"block_size": graph.Attr(16)}, x, g.Const(tensor.OfInts(b, 1, 1, 8)).Cast(graph.Uint8),
		g.Const(tensor.Of([]float32{0.5}, 1)))
	m := orttest.Model(t, graph.Output{Name: "y", Node: y})
	in := tensor.New(1, 16)
	in.Data[0], in.Data[1] = 1, 10
	out := orttest.RunOnce(t, m, ort.Options{}, tensor.Map{"x": in})
	if v := out["y"].Data[0]; v != -14 {
		t.Errorf("%g, want -14", v)
	}
}

// Operators that round activations have a shape and no gradient.
func TestQuantisedShapes(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("S"), graph.StaticDim(4)})
	q := g.ApplyN(graph.Standard, "DynamicQuantizeLinear", nil, 3, x)
	w := g.Const(tensor.OfInts(make([]int64, 12), 4, 3)).Cast(graph.Uint8)
	y := g.Apply(graph.Standard, "MatMulInteger", nil, q[0], w, q[2])
	if got := y.Shape().String() + y.DType().String() + q[1].Shape().String() + q[0].DType().String(); got !=
		"[S,3]INT32[]UINT8" || g.Err() != nil {
		t.Errorf("%s, %v", got, g.Err())
	}
}

// By ONNX's definitions: positions are integers, and an attribute states the type of other results.
func TestStatedTypes(t *testing.T) {
	g := graph.New()
	x, i := g.Input("x", graph.Float, graph.Static(1, 1, 4)), g.Ints(1).Reshape(1, 1)
	window := attrs{"kernel_shape": graph.Attr([]int{2})}
	for want, n := range map[string]node{
		"INT64[1,1,3]": g.ApplyN(graph.Standard, "MaxPool", window, 2, x)[1],
		"FLOAT[1,1]":   g.Apply(graph.Standard, "EyeLike", attrs{"dtype": graph.Attr(int(graph.Float))}, i),
		"INT64[1,1]":   g.Apply(graph.Standard, "EyeLike", nil, i),
		"INT8[1,1,4]":  g.Apply(graph.Standard, "QuantizeLinear", attrs{"output_dtype": graph.Attr(3)}, x, x), // int8
	} {
		if got := n.DType().String() + n.Shape().String(); got != want || g.Err() != nil {
			t.Errorf("%v is %s, want %s (%v)", n, got, want, g.Err())
		}
	}
}
