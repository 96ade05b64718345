package tensor

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
	n := OfInts([]int64{6, 7, 8, 9}, 2, 2)
	if got := n.Rows([]int{1}); !got.IsInt() || !slices.Equal(got.Ints, []int64{8, 9}) {
		t.Errorf("rows of integers: %v", got)
	}
	if got := n.Row(1); !got.IsInt() || !slices.Equal(got.Ints, []int64{8, 9}) || !slices.Equal(got.Shape, []int{2}) {
		t.Errorf("row of integers: %v %v", got, got.Ints)
	}
	s := Stack([]*Tensor{Of([]float32{1, 2}, 2), Of([]float32{3, 4}, 2)})
	if !slices.Equal(s.Shape, []int{2, 2}) || !slices.Equal(s.Data, []float32{1, 2, 3, 4}) {
		t.Errorf("stack %v %v", s.Shape, s.Data)
	}
	if empty := Stack([]*Tensor{OfInts([]int64{}, 0)}); !empty.IsInt() {
		t.Errorf("integers became %v", empty)
	}
}

func TestNumbers(t *testing.T) {
	x := Of([]float32{3, -4}, 2)
	if x.Norm() != 5 || x.MaxAbs() != 4 || x.NonFinite() != -1 || x.Bytes() != 8 || Distance(x, Of([]float32{1, 1},
		2)) != 5 {
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
	long := New(323) // from 256 on, 64 numbers are looked at together, four at a time
	for i := range long.Data {
		if long.Data[i] = float32(math.Inf(1)); long.NonFinite() != i {
			t.Errorf("found at %d, want %d", long.NonFinite(), i)
		}
		if long.Data[i] = 1e38; long.NonFinite() != -1 {
			t.Errorf("a finite number counts as infinite: %d", long.NonFinite())
		}
	}
	long.Data[70], long.Data[71] = float32(math.Inf(1)), float32(math.Inf(-1))
	if long.NonFinite() != 70 {
		t.Errorf("two opposite infinities: %d", long.NonFinite())
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
	if m.Bytes() != 12 || m.Count() != 3 {
		t.Errorf("bytes %d, numbers %d", m.Bytes(), m.Count())
	}
	if n := (Map{"a": Of([]float32{2, -3}, 2), "b": Of([]float32{6}, 1)}).Norm(); n != 7 { // √(4+9+36)
		t.Errorf("norm %v", n)
	}
}

func TestKindAndShape(t *testing.T) {
	floats, ints := New(2, 3), OfInts(make([]int64, 6), 2, 3)
	if floats.String() != "float32[2 3]" || ints.String() != "int64[2 3]" {
		t.Errorf("%v and %v", floats, ints)
	}
	if ints.Len() != 6 || ints.Bytes() != 48 || (&Tensor{Shape: []int{0}}).IsInt() || New(0).IsInt() {
		t.Error("kinds and sizes")
	}
	if floats.SameShape(ints) || floats.SameShape(New(3, 2)) || !floats.SameShape(New(2, 3)) || !ints.SameShape(ints) {
		t.Error("shapes are compared wrongly")
	}
	for want, f := range map[string]func(){
		"tensor.Of: 2 values for shape [3]":       func() { Of([]float32{1, 2}, 3) },
		"tensor.OfInts: 2 values for shape [2 2]": func() { OfInts([]int64{1, 2}, 2, 2) },
		"tensor.Blend: shapes [2 3] and [5]":      func() { floats.Axpy(1, New(5)) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("%v, want %s", got, want)
				}
			}()
			f()
		}()
	}
}

// A size of at most 9 takes 0 to 9. The element type counts unless a tensor is empty.
func TestSpecs(t *testing.T) {
	const end = "; the sender runs another experiment"
	specs := Specs{{Name: "a", Shape: []int{2, 3}}, {Name: "rows", Int: true, Shape: []int{-9, 3}, Optional: true}}
	a := Spec{Name: "a", Shape: []int{2, 3}}
	rows := func(n int) Spec { return Spec{Name: "rows", Int: true, Shape: []int{n, 3}} }
	floats := func(n int) Spec { return Spec{Name: "rows", Shape: []int{n, 3}} }
	for _, c := range []struct {
		got  Specs
		want string
	}{
		{Specs{a}, ""}, {Specs{rows(9), a}, ""}, {Specs{a, rows(1)}, ""}, {Specs{a, floats(0)}, ""},
		{Specs{rows(1)}, "the tensor a is missing, which must be float32[2 3]" + end},
		{Specs{a, rows(10)}, "the tensor rows is int64[10 3] and must be int64[<=9 3]" + end},
		{Specs{a, floats(1)}, "the tensor rows is float32[1 3] and must be int64[<=9 3]" + end},
		{Specs{{Name: "a", Shape: []int{1, 3}}}, "the tensor a is float32[1 3] and must be float32[2 3]" + end},
		{Specs{{Name: "a", Shape: []int{2}}}, "the tensor a is float32[2] and must be float32[2 3]" + end},
		{Specs{a, {Name: "b", Shape: []int{1}}}, `the tensor "b" is not among those that were asked for`},
	} {
		err := specs.Check(c.got)
		if got := strings.TrimPrefix(fmt.Sprint(err), "<nil>"); got != c.want {
			t.Errorf("%v: %s, want %s", c.got, got, c.want)
		}
	}
	none := Specs{{Name: "none", Shape: []int{0}}} // exactly empty, not at most
	if none.Check(Specs{{Name: "none", Shape: []int{1}}}) == nil || none[0].String() != "float32[0]" {
		t.Error("an empty shape takes a number")
	}
	known := SpecsOf(Map{"b": OfInts([]int64{1}, 1), "a": New(2)}).WithPrefix("p")
	if got := fmt.Sprint(known); got != "[float32[2] int64[1]]" || known[0].Name != "p/a" || known[1].Name != "p/b" {
		t.Errorf("%v", known)
	}
}

// InParts visits every element once, also where several cores share the parts.
func TestInParts(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 14, 1<<14 + 1, 1<<19 + 3} {
		seen := make([]int32, n)
		InParts(n, func(from, to int) {
			for i := from; i < to; i++ {
				seen[i]++
			}
		})
		if i := slices.IndexFunc(seen, func(k int32) bool { return k != 1 }); i >= 0 {
			t.Errorf("%d elements: element %d was visited %d times", n, i, seen[i])
		}
	}
	x := New(1 << 20)
	x.Data[1<<19], x.Data[700] = float32(math.NaN()), float32(math.Inf(1))
	if i := x.NonFinite(); i != 700 {
		t.Errorf("the first infinite element is %d, want 700", i)
	}
}

// A large tensor may get the memory of a released one. Two tensors never share memory, and a released one is empty.
func TestRelease(t *testing.T) {
	for _, shape := range [][]int{{3}, {700, 800}} {
		a := Reuse(shape...)
		data := a.Data
		a.Release()
		a.Release()
		b, c := Reuse(shape...), Reuse(shape...)
		for i := range b.Data {
			b.Data[i], c.Data[i] = 1, 2
		}
		if a.Len() != 0 || b.Len() != len(data) || slices.Contains(b.Data, 2) || !slices.Equal(b.Shape, shape) {
			t.Errorf("%v: %d elements are left, %v has %d", shape, a.Len(), b, b.Len())
		}
	}
}

// Every loop has the bits of plain Go, with and without vectors (GODEBUG=cpu.avx2=off), for any number of elements,
// also of those that round, overflow, vanish, or are no numbers.
func TestNumbersAreExact(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), 1, -1. / 3, 1e38, -3e38, 1e-45, 1e-38, math.Inf(1), math.Inf(-1),
		math.NaN(), math.MaxFloat32}
	for n := 0; n < 2100; n += 1 + n/40 {
		x, y := New(n), New(n)
		for i := range n {
			x.Data[i], y.Data[i] = float32(special[i%len(special)]), float32(special[(i*7+i/12)%len(special)])
			if i%5 == 0 {
				x.Data[i], y.Data[i] = float32(math.Sin(float64(i))), float32(math.Cos(float64(i*i)))
			}
		}
		blended, sum, was := y.Clone(), New(n), y.Clone()
		blended.Blend(.9, -1.1, x)
		y.Axpy(.1, x)
		sum.WeightedSum([]float64{.3, .7}, [][]float32{x.Data, was.Data})
		finite := -1
		for i, v := range x.Data {
			a, b := float64(was.Data[i]), float64(v)
			for what, pair := range map[string][2]float32{"blend": {blended.Data[i], float32(.9*a + -1.1*b)},
				"axpy": {y.Data[i], float32(a + .1*b)}, "sum": {sum.Data[i], float32(0 + .3*b + .7*a)}} {
				got, want := math.Float32bits(pair[0]), math.Float32bits(pair[1])
				if got != want && !(pair[0] != pair[0] && pair[1] != pair[1]) {
					t.Fatalf("%s of %v and %v, element %d of %d: %v, want %v", what, a, b, i, n, pair[0], pair[1])
				}
			}
			if finite < 0 && (math.IsNaN(b) || math.IsInf(b, 0)) {
				finite = i
			}
		}
		if got := x.NonFinite(); got != finite {
			t.Fatalf("of %d elements %d is the first that is not finite, want %d", n, got, finite)
		}
	}
}
