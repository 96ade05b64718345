package ort_test

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

func run(t testing.TB, s *ort.Session, in tensor.Map) tensor.Map {
	t.Helper()
	out, err := s.Run(context.Background(), in)
	goldentest.NoError(t, err)
	return out
}

func equal(t testing.TB, got, want *tensor.Tensor) {
	t.Helper()
	if reflect.DeepEqual(want, got) { // cmp.Diff takes a second for a large tensor
		return
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// By hand: [1,2] W = [1+8, 2+10, 3+12], [-1,0] W = [-1,-2,-3].
func TestDynamicBatch(t *testing.T) {
	s := open(t, linear(t), ort.Options{})
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{9, 12, 15}, 1, 3))
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2, -1, 0}, 2, 2)})["y"], tensor.Of([]float32{9, 12, 15,
		-1, -2, -3}, 2, 3))
	equal(t, run(t, s, tensor.Map{"x": tensor.New(0, 2)})["y"], tensor.New(0, 3))
	if s.Provider() != ort.CPU {
		t.Errorf("provider %q", s.Provider())
	}
}

// Rows 2, 0, 2 of a table, and the integer sum 2+0+2 of rank 0.
func TestIntegerInputsAndScalarOutput(t *testing.T) {
	b := (&builder{}).in("label", i64, dims{"B"}).constant("table", []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	b.node("Gather", []string{"table", "label"}, "rows").out("rows", f32, dims{"B", 2})
	b.node("ReduceSum", []string{"label"}, "count", intAttr("keepdims", 0)).out("count", i64, dims{})
	b.node("ReduceSum", []string{"rows"}, "total", intAttr("keepdims", 0)).out("total", f32, dims{})
	s := open(t, b.model(t), ort.Options{})
	out := run(t, s, tensor.Map{"label": tensor.OfInts([]int64{2, 0, 2}, 3)})
	equal(t, out["rows"], tensor.Of([]float32{5, 6, 1, 2, 5, 6}, 3, 2))
	if c := out["count"]; len(c.Shape) != 0 || c.Ints[0] != 4 {
		t.Errorf("count %v %v", c, c.Ints)
	}
	if c := out["total"]; len(c.Shape) != 0 || c.Data[0] != 25 {
		t.Errorf("total %v %v", c, c.Data)
	}
}

// A scalar input of rank 0 times a vector, and outputs whose shape the graph does not declare, of rank 2, 0 and empty.
func TestScalarInputAndUndeclaredShapes(t *testing.T) {
	b := (&builder{}).in("a", f32, dims{}).in("x", f32, dims{"B", 2}).node("Mul", []string{"a", "x"}, "y").out("y", f32,
		nil)
	b.node("ReduceSum", []string{"y"}, "sum", intAttr("keepdims", 0)).out("sum", f32, nil)
	s := open(t, b.model(t), ort.Options{})
	out := run(t, s, tensor.Map{"a": tensor.Scalar(3), "x": tensor.Of([]float32{1, 2, 3, 4}, 2, 2)})
	equal(t, out["y"], tensor.Of([]float32{3, 6, 9, 12}, 2, 2))
	equal(t, out["sum"], tensor.Scalar(30))
	out = run(t, s, tensor.Map{"a": tensor.Scalar(3), "x": tensor.New(0, 2)})
	equal(t, out["y"], tensor.New(0, 2))
	equal(t, out["sum"], tensor.Scalar(0))
}

// Each type passes through an Identity; 1+2^-11 rounds to 1 in float16 and bfloat16 (IEEE 754 ties to even), 2.5 is
// exact in all floating types, 255 and 1 in all integer types that hold them.
func TestOtherTypes(t *testing.T) {
	near := float32(1 + 1.0/2048)
	floats := map[onnx.TensorProto_DataType]float32{f16: 1, b16: 1, f64: near, f32: near}
	for typ, want := range floats {
		for _, shape := range []dims{{"N"}, {2}, nil} {
			b := (&builder{}).in("x", typ, shape).node("Identity", []string{"x"}, "y").out("y", typ, shape)
			s := open(t, b.model(t), ort.Options{})
			equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{2.5, near}, 2)})["y"],
				tensor.Of([]float32{2.5, want}, 2))
		}
	}
	top := map[onnx.TensorProto_DataType]int64{tf: 1, u8: 255, i32: math.MaxInt32, i64: math.MaxInt64,
		u64:                   math.MaxInt64,
		onnx.TensorProto_INT8: 127, onnx.TensorProto_INT16: 32767, onnx.TensorProto_UINT16: 65535,
		onnx.TensorProto_UINT32: math.MaxUint32}
	for typ, v := range top {
		b := (&builder{}).in("x", typ, dims{"N"}).node("Identity", []string{"x"}, "y").out("y", typ, dims{"N"})
		s := open(t, b.model(t), ort.Options{})
		equal(t, run(t, s, tensor.Map{"x": tensor.OfInts([]int64{0, v}, 2)})["y"], tensor.OfInts([]int64{0, v}, 2))
		if typ == i64 || typ == u64 {
			continue
		}
		_, err := s.Run(t.Context(), tensor.Map{"x": tensor.OfInts([]int64{v + 1}, 1)})
		wantError(t, err, "element 0", "cannot hold")
	}
}

// 2^63 is the smallest uint64 that int64 cannot hold. It is the sum of two inputs of 2^62, because (-1)² in
// int64, cast to uint64, would not reach it.
func TestUnsignedOverflow(t *testing.T) {
	b := (&builder{}).in("x", u64, dims{1}).node("Add", []string{"x", "x"}, "y").out("y", u64, dims{1})
	s := open(t, b.model(t), ort.Options{})
	_, err := s.Run(t.Context(), tensor.Map{"x": tensor.OfInts([]int64{1 << 62}, 1)})
	wantError(t, err, `output y uint64[1]`, "2^63")
}

func TestManyAxes(t *testing.T) {
	shape := slices.Repeat(dims{"N"}, 17)
	b := (&builder{}).in("x", f32, shape).node("Identity", []string{"x"}, "y").out("y", f32, shape)
	_, err := open(t, b.model(t), ort.Options{}).Run(t.Context(), tensor.Map{"x": tensor.New(slices.Repeat([]int{1},
		17)...)})
	wantError(t, err, "17 axes, at most 16 are supported")
}

// By hand: y2 = 2x.
func TestKeptOutputs(t *testing.T) {
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	b.node("MatMul", []string{"x", "W"}, "y").out("y", f32, dims{"B", 3}).node("Add", []string{"x", "x"},
		"y2").out("y2", f32, dims{"B", 2})
	s := open(t, b.model(t), ort.Options{Outputs: []string{"y2"}})
	if ports := s.Outputs(); len(ports) != 1 || ports[0].String() != "y2 float32[B 2]" {
		t.Errorf("outputs %v", ports)
	}
	out := run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})
	if len(out) != 1 {
		t.Errorf("outputs %v", out.Names())
	}
	equal(t, out["y2"], tensor.Of([]float32{2, 4}, 1, 2))
}

func TestEveryOptionComputesTheSame(t *testing.T) {
	for _, o := range []ort.Options{{IntraThreads: 2}, {IntraThreads: 2, Spinning: true}, {NoArena: true},
		{Prepack: true}, {OptLevel: ort.OptExtended}, {OptLevel: ort.OptBasic}, {OptLevel: ort.OptNone}} {
		s := open(t, linear(t), o)
		equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{9, 12, 15}, 1,
			3))
	}
}

// wantError checks that an error of this package is one line that contains every word.
func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	goldentest.WantError(t, err, append(words, "ort: ")...)
}
