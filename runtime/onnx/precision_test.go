package onnx_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

func constant(name string, dims []int64, v ...float32) *onnx.TensorProto {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return &onnx.TensorProto{Name: name, DataType: int32(float), Dims: dims, RawData: raw}
}

// stored writes a constant to a file of dir, as weights of towers are.
func stored(t *testing.T, dir string, c *onnx.TensorProto) *onnx.TensorProto {
	t.Helper()
	filetest.Write(t, filepath.Join(dir, c.Name), c.RawData)
	return &onnx.TensorProto{Name: c.Name, DataType: c.DataType, Dims: c.Dims,
		DataLocation: onnx.TensorProto_EXTERNAL, ExternalData: []*onnx.StringStringEntryProto{
			{Key: "location", Value: c.Name}, {Key: "length", Value: fmt.Sprint(len(c.RawData))}}}
}

// lowered returns y of a model, and of the model with float16 products, for x [2,3].
func lowered(t *testing.T, dir string, x []float32, weights []*onnx.TensorProto, nodes ...*onnx.NodeProto) (exact,
	low []float32) {
	t.Helper()
	m := model(13, nodes...)
	m.Graph.Initializer = weights
	var out [2][]float32
	for i, m := range []*onnx.ModelProto{m, onnxtest.LowerPrecision(m, onnx.TensorProto_FLOAT16)} {
		m.Graph.Input = m.Graph.Input[:1]
		o := ort.Options{Provider: ort.CPU, OptLevel: ort.OptNone, WeightsDir: dir}
		got := orttest.RunOnce(t, m, o, tensor.Map{"x": tensor.Of(x, 2, 3)})
		out[i] = got["y"].Data
	}
	return out[0], out[1]
}

// tiny is half of the distance between 1 and the next number of float16, which rounds 1 + tiny to 1 (IEEE 754, ties to
// even).
const tiny = 1.0 / 2048

// By hand: float16 rounds the operands and the result of a product with a weight, and what follows them alone. The sum
// of the product and x, which is of float32, is computed in float32, and so is what has no weight.
func TestLowerPrecisionRounds(t *testing.T) {
	x := []float32{1 + tiny, 2, 0, 0, 1 + tiny, 4}
	dir, unit := t.TempDir(), []float32{1, 0, 0, 0, 1, 0, 0, 0, 1}
	eye := stored(t, dir, constant("W", []int64{3, 3}, unit...))
	texts := constant("texts", []int64{3, 3}, unit...)
	bias := stored(t, dir, constant("b", []int64{3}, 1, 1, 1))
	transposed := node("Transpose", "W", "Wt")
	for name, c := range map[string]struct {
		nodes []*onnx.NodeProto
		want  []float32
	}{
		"product":           {[]*onnx.NodeProto{node("MatMul", "x W", "y")}, []float32{1, 2, 0, 0, 1, 4}},
		"transposed weight": {[]*onnx.NodeProto{transposed, node("MatMul", "x Wt", "y")}, []float32{1, 2, 0, 0, 1, 4}},
		"bias": {[]*onnx.NodeProto{node("MatMul", "x W", "p"), node("Add", "p b", "y")},
			[]float32{2, 3, 1, 1, 2, 5}},
		"residual": {[]*onnx.NodeProto{node("MatMul", "x W", "p"), node("Add", "x p", "y")},
			[]float32{2 + tiny, 4, 0, 0, 2 + tiny, 8}},
		"no weight": {[]*onnx.NodeProto{node("Transpose", "x", "t"), node("MatMul", "x t", "s"),
			node("Mul", "x b", "z"), node("MatMul", "s z", "y")}, nil},
		"constant that is no weight": {[]*onnx.NodeProto{node("MatMul", "x texts", "y")}, nil},
		"softmax":                    {[]*onnx.NodeProto{node("Softmax", "x", "y")}, nil},
	} {
		exact, got := lowered(t, dir, x, []*onnx.TensorProto{eye, bias, texts}, c.nodes...)
		if c.want == nil {
			c.want = exact
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v; in float32 it is %v", name, got, c.want, exact)
		}
	}
}

// kinds returns the operators of a model's nodes.
func kinds(m *onnx.ModelProto) []string {
	return convert.Slice(m.Graph.Node, func(n *onnx.NodeProto) string { return n.OpType })
}

// Chains of products stay in float16: each weight is converted once, before it is transposed, and no value is converted
// to and fro. The graph keeps no node that nothing needs, its types outside, and what a subgraph takes.
func TestLowerPrecisionConvertsLittle(t *testing.T) {
	square := stored(t, t.TempDir(), constant("W", []int64{3, 3}, 1, 0, 0, 0, 1, 0, 0, 0, 1))
	m := model(13, node("Transpose", "W", "Wt"), node("MatMul", "x W", "a"), node("MatMul", "a Wt", "b"),
		node("Neg", "b", "c"), node("MatMul", "c Wt", "y"))
	m.Graph.Initializer = []*onnx.TensorProto{square}
	got := onnx.LowerPrecision(m, onnx.TensorProto_BFLOAT16)
	want := []string{"Cast", "Cast", "MatMul", "Transpose", "MatMul", "Neg", "MatMul", "Cast"}
	if !slices.Equal(kinds(got), want) {
		t.Errorf("%v, want %v", kinds(got), want)
	}
	if len(m.Graph.Node) != 5 || m.Graph.Node[1].Input[1] != "W" {
		t.Error("the model itself changed")
	}

	inner := subgraph("then_branch", node("Relu", "a", "inner"))
	m = model(13, node("MatMul", "x W", "a"), node("If", "yes", "y", inner,
		subgraph("else_branch", node("Neg", "a", "other"))))
	m.Graph.Initializer = []*onnx.TensorProto{square}
	got = onnx.LowerPrecision(m, onnx.TensorProto_FLOAT16)
	if want := []string{"Cast", "Cast", "MatMul", "Cast", "If"}; !slices.Equal(kinds(got), want) {
		t.Errorf("%v, want %v", kinds(got), want)
	}
	if n := got.Graph.Node[3]; n.Output[0] != "a" {
		t.Errorf("a subgraph takes a, and %v makes %s", n.OpType, n.Output[0])
	}

	attention := node("MultiHeadAttention", "W W W W mask scores", "y") // the mask is of integers
	attention.Domain = onnx.Microsoft
	m = model(13, attention)
	m.Graph.Initializer = []*onnx.TensorProto{square}
	got = onnx.LowerPrecision(m, onnx.TensorProto_FLOAT16)
	if in := strings.Join(got.Graph.Node[2].Input, " "); in != "W_low W_low W_low W_low mask scores_low" {
		t.Errorf("the inputs of attention are %s", in)
	}

	conv := model(13, node("Conv", "x W", "y"))
	conv.Graph.Initializer = []*onnx.TensorProto{stored(t, t.TempDir(), constant("W", []int64{1, 1, 1, 1}, 2))}
	if got := kinds(onnx.LowerPrecision(conv, onnx.TensorProto_BFLOAT16)); !slices.Equal(got, []string{"Conv"}) {
		t.Errorf("%v: devices have no convolution of bfloat16 before version 22 of the operators", got)
	}
}
