package results

import (
	"math"
	"testing"
)

// Two methods over seeds 1 to 3 and two values of rho; one run of B is missing, so five pairs of runs and ten of
// clients remain. A is better by 0.1 for one client and by 0.3 for the other: the mean difference is 0.2.
func TestCompare(t *testing.T) {
	var groups []*Group
	for _, method := range []string{"A", "B", "C"} {
		for _, rho := range []string{"0.3", "0.8"} {
			g := &Group{Labels: map[string]string{"method": method, "rho": rho}}
			for seed := range uint64(3) {
				v := [2]float64{.5, .5}
				if method == "A" {
					v = [2]float64{.6, .8}
				}
				state := Done
				if method == "B" && rho == "0.8" && seed == 2 {
					state = Failed
				}
				g.Runs = append(g.Runs, &Run{Seed: seed, State: state, Rounds: rounds(v)})
			}
			groups = append(groups, g)
		}
	}
	list := Compare(groups, "method", "", metric(t, "last"), OverClients)
	if len(list) != 3 || list[0].A != "A" || list[0].B != "B" || list[2].A != "B" || list[2].B != "C" {
		t.Fatalf("%+v", list)
	}
	ab := list[0]
	// Signed ranks of ten positive differences in two groups of five: p = 2/1024, times 3 pairs by Holm, where the pair
	// with twelve differences has the smaller p, 2/4096; equal values have p 1.
	if ab.Runs != 5 || ab.N != 10 || math.Abs(ab.Difference-.2) > 1e-12 || math.Abs(ab.Wilcoxon.P-2./1024) > 1e-12 ||
		math.Abs(ab.HolmWilcoxon-4./1024) > 1e-12 || ab.RankBiserial != 1 {
		t.Errorf("%+v", ab)
	}
	if ac := list[1]; ac.N != 12 || math.Abs(ac.HolmWilcoxon-6./4096) > 1e-12 || !(ac.Low > .1 && ac.Low < .2 &&
		ac.High > .2 && ac.High < .3) {
		t.Errorf("%+v", ac)
	}
	if bc := list[2]; bc.Wilcoxon.P != 1 || bc.HolmWilcoxon != 1 || !math.IsNaN(bc.T.P) || bc.Difference != 0 ||
		bc.Low != 0 {
		t.Errorf("%+v", bc)
	}
	runs := Compare(groups, "method", "", metric(t, "last"), OverRuns)
	if r := runs[0]; r.N != 5 || !math.IsNaN(r.Wilcoxon.P) || math.Abs(r.Difference-.2) > 1e-12 {
		t.Errorf("five pairs of runs are tested: %+v", r)
	}
	if r := runs[1]; r.N != 6 || math.Abs(r.Wilcoxon.P-2./64) > 1e-12 { // all six alike, so t says nothing
		t.Errorf("%+v", r)
	}
	// Against a control there are two pairs to correct for: 2/1024 is the larger p of the two.
	control := Compare(groups, "method", "A", metric(t, "last"), OverClients)
	if len(control) != 2 || control[0].A != "B" || control[0].B != "A" || math.Abs(control[0].Difference+.2) > 1e-12 ||
		math.Abs(control[0].HolmWilcoxon-2./1024) > 1e-12 || math.Abs(control[1].HolmWilcoxon-4./4096) > 1e-12 {
		t.Errorf("against A: %+v", control)
	}
	again := Compare(groups, "method", "", metric(t, "last"), OverClients)
	if again[1] != list[1] {
		t.Error("the same runs give other intervals")
	}
}
