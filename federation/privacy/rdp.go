package privacy

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Orders are the orders of the Rényi divergences, as accountants usually have them: fine for large noise, coarse
// above.
var Orders = orders()

func orders() []float64 {
	var out []float64
	for i := 1; i < 100; i++ {
		out = append(out, 1+float64(i)/10)
	}

	for a := 11.0; a < 64; a++ {
		out = append(out, a)
	}

	return append(out, 128, 256, 512, 1024)
}

// gaussian returns the Rényi divergence of order a of the Gaussian mechanism with noise of s sensitivities: a/(2 s²)
// (Mironov, Rényi Differential Privacy, CSF 2017, proposition 7).
func gaussian(s, a float64) float64 { return a / (2 * s * s) }

// poisson returns the Rényi divergence of order a of the Gaussian mechanism on a Poisson sample of rate q, with noise
// of s sensitivities: log A_a/(a-1) (Mironov, Talwar and Zhang, Rényi Differential Privacy of the Sampled Gaussian
// Mechanism, arXiv 1908.10530, section 3.3). It is exact at whole orders. Between them it falls back to a bound by
// whole orders if the series does not converge, because one round without a bound would lose the order for all rounds
// (van Erven and Harremoës, IEEE Trans. Inf. Theory 2014, corollary 2).
func poisson(q, s, a float64) float64 {
	switch {
	case q == 1:
		return gaussian(s, a)
	case a == math.Trunc(a):
		return poissonWhole(q, s, a) / (a - 1)
	}

	if out := poissonBetween(q, s, a); !math.IsInf(out, 1) {
		return out / (a - 1)
	}

	// log A_a is convex in a, and 0 at 1.
	lo := math.Floor(a)
	t := a - lo
	out := t * poissonWhole(q, s, lo+1)
	if lo > 1 {
		out += (1 - t) * poissonWhole(q, s, lo)
	}

	return out / (a - 1)
}

// poissonWhole returns log A_a for a whole order: log Σ_k C(a,k) (1-q)^(a-k) q^k e^((k²-k)/(2s²)).
func poissonWhole(q, s, a float64) float64 {
	var terms []float64
	for k := 0.0; k <= a; k++ {
		terms = append(terms, logChoose(a, k)+k*math.Log(q)+(a-k)*math.Log1p(-q)+(k*k-k)/(2*s*s))
	}
	return floats.LogSumExp(terms)
}

// most is the largest number of terms in poissonBetween.
const most = 1000

// poissonBetween returns log A_a for any order by the two series of section 3.3, one for each side of the point where
// the two densities cross. Terms after the order alternate in sign; adding their absolute values can only increase the
// divergence. The result is infinite if the series does not converge.
func poissonBetween(q, s, a float64) float64 {
	cross := s*s*math.Log(1/q-1) + 0.5
	lower, upper, total := math.Inf(-1), math.Inf(-1), math.Inf(-1)
	for k := 0.0; k < most; k++ {
		j := a - k
		low := logChoose(a, k) + k*math.Log(q) + j*math.Log1p(-q) + (k*k-k)/(2*s*s) +
			logHalfErfc((k-cross)/(math.Sqrt2*s))
		up := logChoose(a, k) + j*math.Log(q) + k*math.Log1p(-q) + (j*j-j)/(2*s*s) +
			logHalfErfc((cross-j)/(math.Sqrt2*s))
		total = floats.LogSumExp([]float64{total, low, up})
		if low < lower && up < upper && math.Max(low, up) < total-30 {
			return total
		}
		lower, upper = low, up
	}

	return math.Inf(1)
}

// logChoose returns log |C(a,k)| for a real a.
func logChoose(a, k float64) float64 {
	top, _ := math.Lgamma(a + 1)
	one, _ := math.Lgamma(k + 1)
	rest, _ := math.Lgamma(a - k + 1)
	return top - one - rest
}

// logHalfErfc returns log(erfc(x)/2). Where erfc underflows it uses the asymptotic series (Abramowitz and Stegun,
// 7.1.23).
func logHalfErfc(x float64) float64 {
	if x < 20 {
		return math.Log(math.Erfc(x) / 2)
	}
	y := 1 / (2 * x * x)
	return -x*x - math.Log(2*x*math.Sqrt(math.Pi)) + math.Log(1-y*(1-3*y*(1-5*y*(1-7*y))))
}
