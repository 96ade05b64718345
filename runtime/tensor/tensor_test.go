package tensor

import (
	"math"
	"slices"
	"testing"
)

func TestRowsAndStack(t *testing.T) {
	x := Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	if got := x.Rows([]int{2, 0, 2}); !slices.Equal(got.Data, []float32{5, 6, 1, 2, 5, 6}) || !slices.Equal(got.Shape,
		[]int{3, 2}) {
		t.Errorf("rows %v %v", got.Shape, got.Data)
	}
	x.Row(1).Data[0] = 30 // a row is a view
	if x.Data[2] != 30 {
		t.Error("a row is a copy")
	}
	n := OfInts([]int64{7, 8}, 2)
	if got := n.Rows([]int{1}); !got.IsInt() || got.Ints[0] != 8 {
		t.Errorf("rows of integers: %v", got)
	}
	s := Stack([]*Tensor{Of([]float32{1, 2}, 2), Of([]float32{3, 4}, 2)})
	if !slices.Equal(s.Shape, []int{2, 2}) || !slices.Equal(s.Data, []float32{1, 2, 3, 4}) {
		t.Errorf("stack %v %v", s.Shape, s.Data)
	}
}

func TestNumbers(t *testing.T) {
	x := Of([]float32{3, -4}, 2)
	if x.Norm() != 5 || x.MaxAbs() != 4 || x.NonFinite() != -1 || x.Bytes() != 8 {
		t.Errorf("norm %v, largest %v, first bad %v, bytes %v", x.Norm(), x.MaxAbs(), x.NonFinite(), x.Bytes())
	}
	x.Axpy(0.5, Of([]float32{2, 2}, 2))
	if !slices.Equal(x.Data, []float32{4, -3}) {
		t.Errorf("axpy %v", x.Data)
	}
	for _, v := range []float64{math.Inf(-1), math.Inf(1), math.NaN()} {
		if x.Data[1] = float32(v); x.NonFinite() != 1 {
			t.Errorf("%v is not found: %d", v, x.NonFinite())
		}
	}
	if x.Data[1] = math.MaxFloat32; x.NonFinite() != -1 {
		t.Error("the largest number counts as infinite")
	}
	if Scalar(1).Len() != 1 || New(2, 0).Len() != 0 || Size(nil) != 1 {
		t.Error("sizes")
	}
}

func TestMap(t *testing.T) {
	m := Map{}.Put("a", Map{"x": Of([]float32{1}, 1), "b/y": Of([]float32{2}, 1)})
	m["ax"] = Of([]float32{9}, 1)
	if got := m.WithoutPrefix("a").Names(); !slices.Equal(got, []string{"b/y", "x"}) {
		t.Errorf("under a: %v", got)
	}
	c := m.Clone()
	c.Axpy(2, Map{"ax": Of([]float32{1}, 1), "new": Of([]float32{3}, 1)}).Scale(10)
	if c["ax"].Data[0] != 110 || c["new"].Data[0] != 60 || m["ax"].Data[0] != 9 || m["new"] != nil {
		t.Errorf("axpy and scale: %v %v, source %v", c["ax"].Data, c["new"].Data, m["ax"].Data)
	}
	if m.Bytes() != 12 {
		t.Errorf("bytes %d", m.Bytes())
	}
}
