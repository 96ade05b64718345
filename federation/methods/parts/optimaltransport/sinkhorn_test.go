package optimaltransport

import (
	"math"
	"math/rand/v2"
	"testing"

	"promptfed/runtime/tensor"
)

// Two images and two classes with scores S = (a, b; c, d) and equal masses: by symmetry of a 2x2 plan with margins 1/2,
// it is (t, 1/2-t; 1/2-t, t) with t/(1/2-t) = e^((a+d-b-c)/2eps).
func TestSinkhornByHand(t *testing.T) {
	for _, eps := range []float64{0.01, 0.5, 10} {
		s := []float32{-0.3, -1.2, -0.7, -0.75}
		odds := math.Exp((-0.3 - 0.75 + 1.2 + 0.7) / (2 * eps))
		want := odds / (1 + odds) / 2
		plan := Sinkhorn(tensor.Of(s, 2, 2), []float64{0.5, 0.5}, eps, 1000000)
		if math.Abs(plan[0][0]-want) > 1e-6 || math.Abs(plan[1][0]-(0.5-want)) > 1e-6 {
			t.Errorf("eps %v: %v, by hand %v in the corner", eps, plan, want)
		}
	}
}

// Columns have their masses, also a mass of 0. Rows have 1/N of mass within a millionth.
func TestSinkhornMargins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := tensor.New(9, 4)
	for i := range s.Data {
		s.Data[i] = -float32(5 * r.Float64())
	}
	masses := []float64{0.5, 0.3, 0.2, 0}
	plan := Sinkhorn(s, masses, 0.1, 10000)
	for c, want := range masses {
		sum := 0.0
		for i := range plan {
			sum += plan[i][c]
		}
		if math.Abs(sum-want) > 1e-12 {
			t.Errorf("column %d has %v, not %v", c, sum, want)
		}
	}
	for i, row := range plan {
		sum := 0.0
		for _, v := range row {
			sum += v
		}
		if math.Abs(sum-1./9) > 2e-6/9 {
			t.Errorf("row %d has %v", i, sum)
		}
	}
}

// Iterations by multiplication equal those in logarithms, also for scores that lie thousands apart.
func TestSinkhornMultiplies(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, spread := range []float64{1, 30} {
		k := kernel{u: make([]float64, 12), v: make([]float64, 5), masses: []float64{0.2, 0.4, 0.1, 0.3, 0}}
		s := tensor.New(12, 5)
		for i := range 12 {
			row := make([]float64, 5)
			for c := range row {
				s.Row(i).Data[c] = -float32(spread * r.Float64())
				row[c] = float64(s.Row(i).Data[c]) / 0.01
			}
			k.scores = append(k.scores, row)
		}
		got := Sinkhorn(s, k.masses, 0.01, 400)
		for range 400 {
			if k.logarithms() <= 1e-6 {
				break
			}
		}
		for i, row := range k.plan() {
			for c, want := range row {
				if math.Abs(got[i][c]-want) > 1e-6 {
					t.Fatalf("spread %v: plan[%d][%d] is %v, by logarithms alone %v", spread, i, c, got[i][c], want)
				}
			}
		}
	}
}

// Seven iterations by multiplication equal seven in logarithms, and so does the error of a row's mass. Sinkhorn stops
// after the given number.
func TestMultiplyIsLogarithms(t *testing.T) {
	start := func() kernel {
		k := kernel{scores: [][]float64{{0, 1, 3, 1}, {2, -1, 0.5, 2}}, u: make([]float64, 2), v: make([]float64, 4),
			masses: []float64{0.5, 0.2, 0.3, 0}}
		k.logarithms()
		return k
	}
	want, off := start(), 0.0
	for range 7 {
		off = want.logarithms()
	}
	got := start()
	steps, most := got.multiply(7)
	if steps != 7 || math.Abs(most-off) > 1e-12 || !(off > 1e-6) {
		t.Errorf("%d iterations with an error of %v, in logarithms %v", steps, most, off)
	}
	of8 := Sinkhorn(tensor.Of([]float32{0, 1, 3, 1, 2, -1, 0.5, 2}, 2, 4), want.masses, 1, 8)
	for i, row := range got.plan() {
		for c, v := range row {
			if w := want.plan()[i][c]; !(math.Abs(v-w) <= 1e-13 && math.Abs(of8[i][c]-w) <= 1e-13) {
				t.Errorf("plan[%d][%d] is %v and %v, in logarithms %v", i, c, v, of8[i][c], w)
			}
		}
	}
}

// A row, or a column, whose scores underflow has no iteration by multiplication, and nothing changes.
func TestMultiplyWithinTheRange(t *testing.T) {
	for _, scores := range [][][]float64{{{-800, -800}, {0, 0}}, {{-800, 0}, {-800, 0}}} {
		k := kernel{scores: scores, u: []float64{0.5, 0}, v: []float64{0, 0.5}, masses: []float64{0.5, 0.5}}
		if steps, off := k.multiply(3); steps != 0 || !math.IsInf(off, 1) || k.u[0] != 0.5 || k.v[1] != 0.5 {
			t.Errorf("%v: %d iterations, error %v, %v %v", scores, steps, off, k.u, k.v)
		}
	}
}

// Numbers within 1e-130 and 1e130, and 0, multiply without leaving the range.
func TestOrdinary(t *testing.T) {
	for v, want := range map[float64]bool{0: true, 1: true, 1.1e-130: true, 0.9e130: true, 1e-130: false, 1e130: false,
		-1: false, math.NaN(): false, math.Inf(1): false} {
		if got := ordinary([]float64{1, v}); got != want {
			t.Errorf("%v: %v", v, got)
		}
	}
}
