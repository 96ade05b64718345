package calibration

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
)

// By hand: [[5,4],[4,5]] has the eigenvalues 9 and 1 along (1,1)/√2 and (1,-1)/√2. The sign of the second, whose
// entries have equal magnitudes, is not tested. As rows it is (2,1) and (1,2), whose Gram matrix is the same.
func TestPrincipalAxesByHand(t *testing.T) {
	s := 1 / math.Sqrt2
	byMatrix, err := principalAxes(mat.NewSymDense(2, []float64{5, 4, 4, 5}), 2)
	goldentest.NoError(t, err)
	byRows, err := rowAxes(mat.NewDense(2, 2, []float64{2, 1, 1, 2}), 2)
	goldentest.NoError(t, err)
	for _, a := range []principal{byMatrix, byRows} {
		near(t, a.Sizes, 9, 1)
		near(t, a.Vectors[0], s, s)
		if math.Abs(math.Abs(a.Vectors[1][0])-s) > 1e-12 || math.Abs(a.Vectors[1][0]+a.Vectors[1][1]) > 1e-12 {
			t.Errorf("second axis %v", a.Vectors[1])
		}
	}
}

func near(t *testing.T, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("%v, want %v", got, want)
			return
		}
	}
}

// One row (3,-4) of width 2, and three of width 2 on a line: one axis of size 25, and of 25+100+0. Rows without extent
// have no axis, and neither has a matrix of zeros or with a negative eigenvalue from rounding.
func TestAxesOfLowRank(t *testing.T) {
	for rows, size := range map[*mat.Dense]float64{
		mat.NewDense(1, 2, []float64{3, -4}):              25,
		mat.NewDense(3, 2, []float64{3, -4, -6, 8, 0, 0}): 125,
	} {
		a, err := rowAxes(rows, 5)
		goldentest.NoError(t, err)
		near(t, a.Sizes, size)
		near(t, a.Vectors[0], -.6, .8)
	}
	for _, m := range []*mat.SymDense{mat.NewSymDense(2, nil), mat.NewSymDense(2, []float64{-1, 0, 0, -2})} {
		if a, err := principalAxes(m, 2); err != nil || len(a.Sizes) != 0 {
			t.Errorf("%v, %v", a, err)
		}
	}
	a, err := principalAxes(mat.NewSymDense(3, []float64{4, 0, 0, 0, -1e-9, 0, 0, 0, 1e-9}), 3)
	goldentest.NoError(t, err)
	near(t, a.Sizes, 4)
}

// The axes are orthonormal, sorted by size and rebuild the matrix, by rows and by matrix, at both sides of the width.
func TestAxesRebuild(t *testing.T) {
	for _, r := range []int{3, 7, 20} {
		const d = 7
		rows := mat.NewDense(r, d, nil)
		for i, v := range method.Draw(uint64(r), 0, "rows", []int{r, d}, 1).Data {
			rows.RawMatrix().Data[i] = float64(v)
		}
		var cov mat.SymDense
		cov.SymOuterK(1, rows.T())
		a, err := rowAxes(rows, d)
		goldentest.NoError(t, err)
		b, err := principalAxes(&cov, d)
		goldentest.NoError(t, err)
		if len(a.Sizes) != min(r, d) || len(b.Sizes) != min(r, d) {
			t.Fatalf("%d rows: %d and %d axes", r, len(a.Sizes), len(b.Sizes))
		}
		for _, x := range []principal{a, b} {
			var back mat.SymDense
			back.ReuseAsSym(d)
			for j, v := range x.Vectors {
				if j > 0 && x.Sizes[j] > x.Sizes[j-1] {
					t.Errorf("sizes %v", x.Sizes)
				}
				for i := range j + 1 {
					want := 0.0
					if i == j {
						want = 1
					}
					if got := mat.Dot(mat.NewVecDense(d, v), mat.NewVecDense(d,
						x.Vectors[i])); math.Abs(got-want) > 1e-10 {
						t.Errorf("axes %d and %d have the product %g", i, j, got)
					}
				}
				back.SymRankOne(&back, x.Sizes[j], mat.NewVecDense(d, v))
			}
			if !mat.EqualApprox(&back, &cov, 1e-9) {
				t.Errorf("%d rows: rebuilt %v, want %v", r, mat.Formatted(&back), mat.Formatted(&cov))
			}
		}
		two, err := rowAxes(rows, 2)
		goldentest.NoError(t, err)
		near(t, two.Sizes, a.Sizes[:2]...)
	}
}

// BenchmarkAxes times one class at the width of ViT-B/16.
func BenchmarkAxes(b *testing.B) {
	const d = 512
	rows := mat.NewDense(2*d, d, nil)
	for i, v := range method.Draw(1, 0, "rows", []int{2 * d, d}, 1).Data {
		rows.RawMatrix().Data[i] = float64(v)
	}
	for b.Loop() {
		if _, err := rowAxes(rows, 64); err != nil {
			b.Fatal(err)
		}
	}
}
