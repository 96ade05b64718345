package results

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"promptfed/federation/engine/metrics"
)

// Stat is a number over seeds.
type Stat struct {
	Seeds  []uint64  // ascending
	Values []float64 // one per seed
}

// N returns the number of seeds.
func (s Stat) N() int { return len(s.Values) }

// Mean returns the mean over seeds; NaN without any.
func (s Stat) Mean() float64 {
	if len(s.Values) == 0 {
		return math.NaN()
	}
	return metrics.Mean(s.Values)
}

// Std returns the sample standard deviation over seeds. It divides by n-1, because the seeds are a sample of all seeds.
// It is NaN for fewer than two seeds.
func (s Stat) Std() float64 {
	if len(s.Values) < 2 {
		return math.NaN()
	}
	return stat.StdDev(s.Values, nil)
}

// Stat returns a metric of the group's finished runs.
func (g *Group) Stat(m Metric) Stat {
	var s Stat
	for _, r := range g.Done() {
		if v, ok := m.Value(r); ok {
			s.Seeds, s.Values = append(s.Seeds, r.Seed), append(s.Values, v)
		}
	}
	return s
}

// Mean averages several numbers seed by seed, over the seeds that all of them have.
func Mean(stats []Stat) Stat {
	var out Stat
	if len(stats) == 0 {
		return out
	}

	for i, seed := range stats[0].Seeds {
		sum, n := stats[0].Values[i], 1
		for _, s := range stats[1:] {
			if j := slices.Index(s.Seeds, seed); j >= 0 {
				sum, n = sum+s.Values[j], n+1
			}
		}
		if n == len(stats) {
			out.Seeds, out.Values = append(out.Seeds, seed), append(out.Values, sum/float64(n))
		}
	}

	return out
}

// Curve is a quantity over the rounds, as mean and standard deviation over the seeds with a value in the round.
type Curve struct {
	Rounds []int // counted from 1
	Mean   []float64
	Std    []float64 // sample standard deviation (n-1); 0 for one seed
	N      []int     // numbers of seeds
}

// Curves averages the metric's quantity over the finished runs of some groups, seed by seed, in every round with the
// quantity. Of a group without finished runs it takes all. A seed counts in a round if all groups have it.
func Curves(groups []*Group, m Metric) Curve { return CurveOf(groups, m.read) }

// CurveOf is Curves for a number of a round; false if the round does not have it.
func CurveOf(groups []*Group, read func(Round) (float64, bool)) Curve {
	var curve Curve
	var drawn [][]*Run // by group
	most := 0
	for _, g := range groups {
		drawn = append(drawn, g.Drawn())
		for _, r := range g.Drawn() {
			most = max(most, len(r.Rounds))
		}
	}

	for i := range most {
		var stats []Stat
		for _, runs := range drawn {
			var s Stat
			for _, r := range runs {
				if i < len(r.Rounds) {
					if v, ok := read(r.Rounds[i]); ok {
						s.Seeds, s.Values = append(s.Seeds, r.Seed), append(s.Values, v)
					}
				}
			}
			stats = append(stats, s)
		}

		averaged := Mean(stats)
		if averaged.N() == 0 {
			continue
		}

		std := 0.0
		if averaged.N() > 1 {
			std = averaged.Std()
		}

		curve.Rounds, curve.Mean = append(curve.Rounds, i+1), append(curve.Mean, averaged.Mean())
		curve.Std, curve.N = append(curve.Std, std), append(curve.N, averaged.N())
	}

	return curve
}
