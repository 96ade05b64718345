package results

import (
	"math"
	"slices"
	"testing"
)

// Methods on two tasks. D lacks a run of the second task. Means of A, B and C over two seeds are .9, .8 and .8 on the
// first task and .6, .7 and .5 on the second: ranks 1, 2.5, 2.5 and 2, 1, 3. By hand, with k = 3, N = 2 and a tie of
// two: chi square is 12*2/(3*4) * ((1.5-2)^2 + (1.75-2)^2 + (2.75-2)^2) / (1 - 6/(2*24)) = 2 * .875 / .875 = 2, F is
// (2-1)*2/(2*2-2) = 1, and its p with 2 and 2 degrees of freedom is 1/2.
func TestRank(t *testing.T) {
	var groups []*Group
	for i, method := range []string{"C", "A", "B", "D"} {
		for j, task := range []string{"one", "two"} {
			g := &Group{Labels: map[string]string{"method": method, "task": task}}
			for seed := range uint64(2) {
				v := [][]float64{{.8, .5}, {.9, .6}, {.8, .7}, {1, 1}}[i][j] + .1*float64(seed) - .05
				state := Done
				if method == "D" && task == "two" && seed == 1 {
					state = Failed
				}
				g.Runs = append(g.Runs, &Run{Seed: seed, State: state, Rounds: rounds([2]float64{v, v})})
			}
			groups = append(groups, g)
		}
	}
	r, ok := Rank(groups, "method", metric(t, "last"))
	if !ok || !slices.Equal(r.Labels, []string{"A", "B", "C"}) || !slices.Equal(r.Unranked, []string{"D"}) ||
		!slices.Equal(r.Blocks, []string{"one", "two"}) || !slices.Equal(r.Mean, []float64{1.5, 1.75, 2.75}) {
		t.Fatalf("%v: %+v", ok, r)
	}
	if math.Abs(r.ChiSquare.Statistic-2) > 1e-12 || math.Abs(r.ImanDavenport.Statistic-1) > 1e-12 ||
		math.Abs(r.ImanDavenport.P-.5) > 1e-12 {
		t.Errorf("%+v", r.Ranking)
	}
	if s := r.Stats[1][2]; s.N() != 2 || math.Abs(s.Mean()-.5) > 1e-12 {
		t.Errorf("C on two: %+v", s)
	}
	if _, ok := Rank(WithLabels(groups, map[string]string{"task": "one"}), "method", metric(t, "last")); ok {
		t.Error("ranks over one task")
	}
}
