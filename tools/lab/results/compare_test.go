package results

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// Two methods over seeds 1 to 3 and two values of rho. One run of B is missing, so five pairs of runs and ten pairs of
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
	nan := math.IsNaN
	list := Compare(groups, "method", "", metric(t, "last"), OverClients)
	if len(list) != 3 || list[0].A != "A" || list[0].B != "B" || list[2].A != "B" || list[2].B != "C" {
		t.Fatalf("%+v", list)
	}
	// Ten pairs of clients in five pairs of runs have only a mean difference.
	if ab := list[0]; ab.Runs != 5 || ab.N != 10 || math.Abs(ab.Difference-.2) > 1e-12 || !nan(ab.Low) ||
		!nan(ab.High) || !nan(ab.Cohen) || !nan(ab.RankBiserial) || !nan(ab.Wilcoxon.P) || !nan(ab.HolmWilcoxon) {
		t.Errorf("%+v", ab)
	}
	// Six pairs have an interval and effect sizes. By hand: the differences are .1 and .3, six times each, and their
	// sample deviation is .1 sqrt(12/11). Clients are never tested, because their pairs are dependent.
	if ac := list[1]; ac.N != 12 || ac.Runs != 6 || !(ac.Low > .1 && ac.Low < .2 && ac.High > .2 && ac.High < .3) ||
		math.Abs(ac.Cohen-2/math.Sqrt(12./11)) > 1e-9 || ac.RankBiserial != 1 || !nan(ac.T.P) ||
		!nan(ac.Wilcoxon.P) || !nan(ac.HolmWilcoxon) || !nan(ac.HolmT) {
		t.Errorf("%+v", ac)
	}
	if bc := list[2]; bc.Difference != 0 || bc.Runs != 5 {
		t.Errorf("%+v", bc)
	}
	runs := Compare(groups, "method", "", metric(t, "last"), OverRuns)
	if r := runs[0]; r.N != 5 || !nan(r.Wilcoxon.P) || !nan(r.Low) || !nan(r.Cohen) ||
		math.Abs(r.Difference-.2) > 1e-12 {
		t.Errorf("five pairs of runs are tested: %+v", r)
	}
	// Six differences of one sign: p = 2/64, and Holm's correction covers the single tested pair. All six are equal, so
	// t is undefined.
	if r := runs[1]; r.N != 6 || math.Abs(r.Wilcoxon.P-2./64) > 1e-12 || math.Abs(r.HolmWilcoxon-2./64) > 1e-12 ||
		!nan(r.T.P) || r.Low != r.High || !slices.Equal(r.Seeds, []uint64{0, 1, 2}) {
		t.Errorf("%+v", r)
	}
	control := Compare(groups, "method", "A", metric(t, "last"), OverRuns)
	if len(control) != 2 || control[0].A != "B" || control[0].B != "A" || math.Abs(control[0].Difference+.2) > 1e-12 ||
		!nan(control[0].HolmWilcoxon) || math.Abs(control[1].HolmWilcoxon-2./64) > 1e-12 {
		t.Errorf("against A: %+v", control)
	}
	again := Compare(groups, "method", "", metric(t, "last"), OverClients)
	if again[1].Low != list[1].Low || again[1].High != list[1].High {
		t.Error("the same runs give other intervals")
	}
	// Clients have an accuracy and no macro-F1: accuracies must not replace macro-F1.
	for _, c := range Compare(groups, "method", "", metric(t, "f1"), OverClients) {
		if c.N != 0 {
			t.Errorf("clients are compared in macro-F1: %+v", c)
		}
	}
}

// TestCautions: notes for a single run each, for one seed on six tasks, and for six seeds.
func TestCautions(t *testing.T) {
	few := "fewer than 6 pairs there is no interval, effect size or test"
	for _, c := range []struct {
		list      []Comparison
		says, not string
	}{
		{[]Comparison{{Runs: 1, Seeds: []uint64{7}}}, "N = 1, of seed 7. With " + few, "seeds"},
		{[]Comparison{{Runs: 6, Seeds: []uint64{7}}}, "With one seed the differences say nothing about other seeds",
			few},
		{[]Comparison{{Runs: 3, Seeds: []uint64{1, 2, 3}}, {Runs: 6, Seeds: []uint64{1, 2, 4}}},
			"N = 3 to 6, of 4 seeds. With " + few, "other seeds"},
		{[]Comparison{{Runs: 6, Seeds: []uint64{1, 2, 3, 4, 5, 6}}}, "N = 6, of 6 seeds.", few},
	} {
		got := strings.Join(Cautions(c.list), " ")
		if !strings.Contains(got, c.says) || strings.Contains(strings.TrimSuffix(got, "other seeds."), c.not) {
			t.Errorf("%+v: %s", c.list, got)
		}
	}
	if got := Cautions([]Comparison{{}}); got != nil {
		t.Errorf("of no pair: %v", got)
	}
}
