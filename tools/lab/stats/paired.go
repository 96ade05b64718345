package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// PairedT returns Student's t test of differences. It is NaN for fewer than two differences and for equal differences.
func PairedT(d []float64) Test {
	n := float64(len(d))
	t := CohensD(d) * math.Sqrt(n)
	if math.IsNaN(t) {
		return Test{t, t}
	}
	return Test{t, min(1, 2*distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Survival(math.Abs(t)))}
}

// CohensD returns Cohen's d of paired values: the mean difference over the sample standard deviation of the
// differences. It is NaN whenever PairedT is NaN.
func CohensD(d []float64) float64 {
	if len(d) < 2 || slices.Min(d) == slices.Max(d) {
		return math.NaN()
	}
	mean, std := stat.MeanStdDev(d, nil)
	return mean / std
}

// Holm corrects the p values of a family of tests (Holm 1979). The probability of any false finding in the family is
// then at most the level of significance. NaN values are not tests and stay.
func Holm(pValues []float64) []float64 {
	out := slices.Clone(pValues)
	var order []int
	for i, v := range pValues {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pValues[a], pValues[b]) })
	most := 0.0
	for k, i := range order {
		most = max(most, min(1, float64(len(order)-k)*pValues[i]))
		out[i] = most
	}

	return out
}

// Bootstrap returns a 95 % confidence interval of the mean of clustered differences, such as clients in runs. Each of n
// resamples draws clusters with replacement, then differences within each with replacement. All drawn differences have
// equal weight (two-stage bootstrap, Davison and Hinkley 1997, section 3.8; percentile method). It is the ordinary
// bootstrap for a single cluster, and for clusters of one difference each. The same seed produces the same interval.
// The interval is NaN for fewer than two differences.
func Bootstrap(clusters [][]float64, n int, seed uint64) (low, high float64) {
	total := 0
	for _, c := range clusters {
		total += len(c)
	}

	if total < 2 || n < 1 {
		return math.NaN(), math.NaN()
	}

	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	means := make([]float64, n)
	for i := range means {
		sum, count := 0.0, 0
		for range clusters {
			c := clusters[r.IntN(len(clusters))]
			for range c {
				sum += c[r.IntN(len(c))]
			}
			count += len(c)
		}
		means[i] = sum / float64(max(1, count))
	}

	slices.Sort(means)
	return Quantile(means, 0.025), Quantile(means, 0.975)
}

// Quantile interpolates between the two values of a sorted list around index q (n - 1), as numpy.quantile does by
// default (type 7 of Hyndman and Fan 1996). gonum's stat.Quantile has only other types.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
