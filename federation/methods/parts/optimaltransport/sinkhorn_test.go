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
