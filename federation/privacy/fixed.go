package privacy

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// fixedSize bounds the Rényi divergence of order a of the Gaussian mechanism on m = q n of n clients drawn without
// replacement, with noise of s sensitivities. The sensitivity is the effect of replacing one client's data.
//
// Wang, Balle and Kasiviswanathan, Subsampled Rényi Differential Privacy and Analytical Moments Accountant, AISTATS
// 2019, theorem 27 (theorem 9 above order 256), and corollary 10 between whole orders.
func fixedSize(q, s, a float64) float64 {
	if q == 1 {
		return gaussian(s, a)
	}

	lo, hi := math.Floor(a), math.Ceil(a)
	t := a - lo
	out := (1 - t) * fixedWhole(q, s, lo)
	if t > 0 {
		out += t * fixedWhole(q, s, hi)
	}

	return out / (a - 1)
}

// exactly is the highest order with forward differences.
const exactly = 256

// fixedWhole returns (a-1) times the bound for a whole order, the log of
//
//	1 + q² C(a,2) min(4 (e^ε(2)-1), 2 e^ε(2)) +
//	Σ_j>2 q^j C(a,j) min(4 √(B(2⌊j/2⌋) B(2⌈j/2⌉)), 2 e^((j-1) ε(j)))
//
// where ε is the divergence of the Gaussian mechanism and B its forward differences.
func fixedWhole(q, s, a float64) float64 {
	var b []float64
	if a <= exactly {
		b = differences(s, 2*int(math.Ceil(a/2)))
	}

	two := gaussian(s, 2)
	terms := []float64{0}
	for j := 2.0; j <= a; j++ {
		bound := math.Ln2 + (j-1)*gaussian(s, j)
		if j == 2 {
			bound = math.Min(bound, math.Log(4)+two+math.Log(-math.Expm1(-two)))
		} else if b != nil {
			half := j / 2
			bound = math.Min(bound, math.Log(4)+(b[2*int(math.Floor(half))]+b[2*int(math.Ceil(half))])/2)
		}
		terms = append(terms, bound+j*math.Log(q)+logChoose(a, j))
	}

	return floats.LogSumExp(terms)
}

// differences returns log |B(l)| for l = 0..n: the forward differences of order l, at 0, of k -> e^((k-1) ε(k)).
func differences(s float64, n int) []float64 {
	logs, minus := make([]float64, n+1), make([]bool, n+1)
	for k := range logs {
		logs[k] = float64(k-1) * gaussian(s, float64(k))
	}

	out := []float64{logs[0]}
	for l := 1; l <= n; l++ {
		for k := 0; k <= n-l; k++ { // the next one less this one
			logs[k], minus[k] = difference(logs[k+1], minus[k+1], logs[k], minus[k])
		}
		out = append(out, logs[0])
	}

	return out
}

// difference returns x - y; x, y and the result are given by the logs of their absolute values and their signs.
func difference(x float64, xMinus bool, y float64, yMinus bool) (log float64, minus bool) {
	big, small := math.Max(x, y), math.Min(x, y)
	switch {
	case math.IsInf(big, -1):
		return big, false
	case xMinus != yMinus:
		return big + math.Log1p(math.Exp(small-big)), xMinus
	case x == y:
		return math.Inf(-1), false
	}

	return big + math.Log(-math.Expm1(small-big)), (x < y) != xMinus
}
