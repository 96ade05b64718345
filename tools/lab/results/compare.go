package results

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment/identity"
	"promptfed/tools/lab/stats"
)

// Level is the unit of one pair of values.
type Level string

// Levels of comparison. Only pairs of runs are independent, if seeds or tasks differ: clients of a run share its seed
// and its server. Values of clients are therefore described and never tested, and pairs of runs are counted.
const (
	OverClients Level = "clients" // one value per client and run
	OverRuns    Level = "runs"    // one value per run
)

// resamples returns the number of resamples for the interval of n differences: 2,000, or fewer for more than 2,500
// differences, whose interval needs fewer, and at least 500.
func resamples(n int) int { return min(2000, max(500, 5_000_000/max(1, n))) }

// Comparison compares paired values of two labels A and B of an axis, as "A - B". All fields below Difference are NaN
// unless the pairs of runs are stats.EnoughPairs.
type Comparison struct {
	A, B         string
	Level        Level
	Runs         int      // pairs of runs
	Seeds        []uint64 // of these pairs, ascending
	N            int      // pairs of values
	Difference   float64
	Low, High    float64 // 95 % bootstrap interval of the difference; resamples draw runs, then clients in them
	Cohen        float64 // mean over sample standard deviation of the differences
	RankBiserial float64
	T, Wilcoxon  stats.Test // over runs
	HolmT        float64    // p corrected over all pairs of labels
	HolmWilcoxon float64
}

// Compare tests every pair of labels of an axis, or every label against control if set, over all runs with the same
// seed and the same other labels. It never pairs runs whose clients have different test data (known from configurations
// and numbers of examples), or a global with a personal evaluation. Over clients it compares only accuracies.
func Compare(groups []*Group, axis, control string, metric Metric, level Level) []Comparison {
	labels := Labels(groups, axis)
	values := map[string]map[string][]float64{} // by label, then by pairKey
	var order []string
	seeds := map[string]uint64{}
	for _, group := range groups {
		label, ok := group.Labels[axis]
		if !ok {
			continue
		}

		for _, r := range group.Done() {
			v := valuesOf(r, metric, level)
			if len(v) == 0 {
				continue
			}
			key := pairKey(group, axis, r) + metric.View(r)
			if values[label] == nil {
				values[label] = map[string][]float64{}
			}
			if _, twice := values[label][key]; !twice {
				values[label][key], seeds[key] = v, r.Seed
				order = append(order, key)
			}
		}
	}

	var out []Comparison
	for i, a := range labels {
		others := labels[i+1:]
		if control != "" {
			others = []string{control}
		}
		for _, b := range others {
			if a != b {
				out = append(out, Comparison{A: a, B: b, Level: level})
			}
		}
	}

	var group errgroup.Group // the bootstrap is slow
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range out {
		group.Go(func() error {
			pairs, keys := differences(values[out[i].A], values[out[i].B], order)
			for _, key := range keys {
				out[i].Seeds = AppendMissing(out[i].Seeds, seeds[key])
			}
			slices.Sort(out[i].Seeds)
			out[i].fill(pairs)
			return nil
		})
	}

	_ = group.Wait()
	correct(out)
	return out
}

// Span names the numbers from least to most.
func Span(least, most int) string {
	if least < most {
		return fmt.Sprintf("%d to %d", least, most)
	}
	return fmt.Sprint(most)
}

// Cautions states limits of comparisons in sentences: the number of independent pairs, and the consequence of few pairs
// or of a single seed.
func Cautions(list []Comparison) []string {
	least, most := math.MaxInt, 0
	var seeds []uint64
	for _, c := range list {
		least, most, seeds = min(least, c.Runs), max(most, c.Runs), AppendMissing(seeds, c.Seeds...)
	}

	if most == 0 {
		return nil
	}

	out := []string{fmt.Sprintf("The unit is a pair of runs: N = %s, of %s.", Span(least, most), counted(seeds))}
	if !stats.EnoughPairs(least) {
		out = append(out, fmt.Sprintf("With fewer than %d pairs there is no interval, effect size or test.",
			stats.MinPairs))
	}

	if len(seeds) == 1 {
		out = append(out, "With one seed the differences say nothing about other seeds.")
	}

	return out
}

// counted formats seeds after their number.
func counted(seeds []uint64) string {
	if len(seeds) == 1 {
		return fmt.Sprintf("seed %d", seeds[0])
	}
	return fmt.Sprintf("%d seeds", len(seeds))
}

// valuesOf returns the paired values of a run at a level.
func valuesOf(r *Run, m Metric, level Level) []float64 {
	if level == OverClients {
		if !m.of(metrics.Accuracy) {
			return nil // clients have no values of other quantities
		}
		return m.PerClient(r)
	}

	if v, ok := m.Value(r); ok {
		return []float64{v}
	}

	return nil
}

// pairKey returns a key that is equal for paired runs: one seed, one point of the grid in all axes except axis, and
// clients with equal numbers of test examples.
func pairKey(group *Group, axis string, r *Run) string {
	key := fmt.Sprint(r.Seed, r.TestData)
	for _, round := range slices.Backward(r.Rounds) {
		if len(round.TestSizes) > 0 { // some client may not have answered the last test
			key += fmt.Sprint(round.TestSizes)
			break
		}
	}

	for _, k := range SortedKeys(group.Labels) {
		if k != axis {
			key += fmt.Sprintf(" %q=%q", k, group.Labels[k])
		}
	}

	return key
}

// differences returns a minus b per pair of runs, in the order of the keys, and the keys of these pairs.
func differences(a, b map[string][]float64, order []string) (out [][]float64, keys []string) {
	used := map[string]bool{}
	for _, key := range order {
		x, y := a[key], b[key]
		if used[key] || x == nil || len(x) != len(y) {
			continue
		}
		used[key] = true
		d := make([]float64, len(x))
		for i := range d {
			d[i] = math.Round((x[i]-y[i])*1e12) / 1e12 // so that differences equal up to rounding are ties
		}
		out, keys = append(out, d), append(keys, key)
	}

	return out, keys
}

// Paired describes the pairs of Compare in two sentences, after a comma: the labels, and what the runs of a pair have
// in common. Within one sweep that is all but the axis.
func Paired(groups []*Group, axis, control string) string {
	paired := map[string][]*identity.Identity{}
	for _, g := range groups {
		for _, r := range g.Done() {
			if r.Identity != nil && (g.Plan == nil || g.Plan.Merged) {
				key := pairKey(g, axis, r)
				paired[key] = append(paired[key], r.Identity)
			}
		}
	}

	differ := map[string]bool{}
	for _, runs := range paired {
		for _, key := range identity.CommonKeys(identity.DifferingKeys(runs), runs) {
			if !strings.HasSuffix("."+key, "."+axis) && (axis != "method" || rankOfKey(key) > 2) {
				differ[key] = true
			}
		}
	}

	labels, rest := "every pair of labels of "+axis, " and differs in nothing else."
	if control != "" {
		labels = fmt.Sprintf("each label of %s against %s", axis, control)
	}

	if len(differ) > 0 {
		rest = fmt.Sprintf(" and, beside its labels of %s, differs in %s.", axis,
			strings.Join(SortedKeys(differ), ", "))
	}

	return labels + ". A pair of runs has the same seed" + rest
}

// fill computes all fields except the corrected p values.
func (c *Comparison) fill(runs [][]float64) {
	var differences []float64
	for _, r := range runs {
		differences = append(differences, r...)
	}

	c.Runs, c.N = len(runs), len(differences)
	nan := math.NaN()
	none := stats.Test{Statistic: nan, P: nan}
	c.Difference, c.Low, c.High, c.Cohen, c.RankBiserial, c.T, c.Wilcoxon = nan, nan, nan, nan, nan, none, none
	if len(differences) == 0 {
		return
	}

	c.Difference = metrics.Mean(differences)
	if !stats.EnoughPairs(c.Runs) {
		return
	}

	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %s", c.A, c.B, c.Level)
	c.Low, c.High = stats.Bootstrap(runs, resamples(len(differences)), h.Sum64())
	c.Cohen, c.RankBiserial = stats.CohensD(differences), stats.RankBiserial(differences)
	if c.Level == OverRuns {
		c.T, c.Wilcoxon = stats.PairedT(differences), stats.SignedRank(differences)
	}
}

// correct applies Holm's correction over the pairs.
func correct(list []Comparison) {
	var t, w []float64
	for _, c := range list {
		t, w = append(t, c.T.P), append(w, c.Wilcoxon.P)
	}

	t, w = stats.Holm(t), stats.Holm(w)
	for i := range list {
		list[i].HolmT, list[i].HolmWilcoxon = t[i], w[i]
	}
}
