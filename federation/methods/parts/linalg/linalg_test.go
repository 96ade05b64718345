package linalg

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/tensor"
)

// The columns (3,4,0), (7,28/3,0) times a million, 0 and (5,0,2): the first becomes (0.6,0.8,0), the next two lie in
// its span, up to rounding, and the last less 3 of the first is (3.2,-2.4,2) of norm √20.
func TestOrthonormalizeByHand(t *testing.T) {
	m := Matrix(tensor.Of([]float32{3, 7e6, 0, 5, 4, 28e6 / 3., 0, 0, 0, 0, 0, 2}, 3, 4))
	Orthonormalize(m)
	got, r := tensor.New(3, 4), float32(math.Sqrt(20))
	Store(got, m)
	for i, want := range []float32{0.6, 0, 0, 3.2 / r, 0.8, 0, 0, -2.4 / r, 0, 0, 0, 2 / r} {
		if !(math.Abs(float64(got.Data[i]-want)) <= 1e-6) {
			t.Errorf("element %d is %v, by hand %v", i, got.Data[i], want)
		}
	}
}

func TestMedianAndMean(t *testing.T) {
	for _, c := range []struct {
		sorted []float64
		median float64
	}{{[]float64{5}, 5}, {[]float64{1, 5}, 3}, {[]float64{1, 2, 9}, 2}, {[]float64{1, 2, 6, 9}, 4}} {
		if got := Median(c.sorted); got != c.median {
			t.Errorf("the median of %v is %v", c.sorted, got)
		}
	}
	if got := Mean([]float64{1, 2, 9}); got != 4 {
		t.Errorf("the mean is %v", got)
	}
}

// The points (0;0), (3;4) and (0;1) in two tensors of one number each.
func TestDistances(t *testing.T) {
	at := func(x, y float32) tensor.Map {
		return tensor.Map{"x": tensor.Of([]float32{x}, 1), "y": tensor.Of([]float32{y}, 1)}
	}
	got := SquaredDistances([]tensor.Map{at(0, 0), at(3, 4), at(0, 1)})
	for i, row := range [][]float64{{0, 25, 1}, {25, 0, 18}, {1, 18, 0}} {
		for j, want := range row {
			if !(math.Abs(got[i][j]-want) <= 1e-13) {
				t.Errorf("from %d to %d: %v, by hand %v", i, j, got[i][j], want)
			}
		}
	}
}

// Rows without a count stay as they are.
func TestRows(t *testing.T) {
	sums := []float64{0, 0, 1, 1}
	AddRow(sums[2:], tensor.Of([]float32{2, 3}, 2), 4)
	mean := tensor.Of([]float32{7, 7, 7, 7}, 2, 2)
	if DivideRows(mean, sums, []float32{0, 2}); !slices.Equal(mean.Data, []float32{7, 7, 4.5, 6.5}) {
		t.Errorf("%v", mean.Data)
	}
	minus := func(a, b float64) float64 { return a - b }
	if got := Elementwise(mean, Scale(mean.Clone(), 2), minus); !slices.Equal(got.Data, []float32{-7, -7, -4.5, -6.5}) {
		t.Errorf("%v", got.Data)
	}
}

// Numbers that move from one list to the next, or to another name, have other bytes.
func TestBytesTellListsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range [][]byte{Bytes(map[string][]float64{"a": {1, 2}}), Bytes(map[string][]float64{"a": {1}}, 2),
		Bytes(map[string][]float64{"b": {1, 2}}), Bytes(map[string][]float64{"a": {2, 1}}), Bytes(nil, 1, 2)} {
		if seen[string(b)] {
			t.Errorf("%x twice", b)
		}
		seen[string(b)] = true
	}
}
