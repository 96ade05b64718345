package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// PairedT is Student's t test of some differences. It says nothing (NaN) with less than two, or where all are equal.
func PairedT(d []float64) Test {
	n := float64(len(d))
	if n < 2 || slices.Min(d) == slices.Max(d) {
		return Test{math.NaN(), math.NaN()}
	}
	mean, std := stat.MeanStdDev(d, nil)
	t := mean / (std / math.Sqrt(n))
	return Test{t, min(1, 2*distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Survival(math.Abs(t)))}
}

// Cohen is the mean difference over the sample standard deviation of the differences (Cohen's d of paired values); NaN
// where PairedT says nothing.
func Cohen(d []float64) float64 {
	if len(d) < 2 || slices.Min(d) == slices.Max(d) {
		return math.NaN()
	}
	mean, std := stat.MeanStdDev(d, nil)
	return mean / std
}

// Holm corrects the p values of a family of tests, so that the chance of a single false finding among them is at most
// what they are held against (Holm 1979). NaN are no tests and stay.
func Holm(p []float64) []float64 {
	out := slices.Clone(p)
	var order []int
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	most := 0.0
	for k, i := range order {
		most = max(most, min(1, float64(len(order)-k)*p[i]))
		out[i] = most
	}
	return out
}

// Bootstrap draws a 95 % confidence interval of the mean of differences that come in clusters, such as the clients of a
// run: each of n resamples draws clusters with replacement and then differences of each with replacement, and counts
// every drawn difference the same (two-stage bootstrap, Davison and Hinkley 1997, section 3.8; percentile method). With
// one cluster it is the ordinary bootstrap; clusters of one difference each make it the ordinary bootstrap of these.
// The same seed gives the same interval. NaN without at least two differences.
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

// Quantile interpolates between the two values of a sorted list around place q (n - 1), as numpy.quantile does by
// default (type 7 of Hyndman and Fan 1996). gonum's stat.Quantile has other types only.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
