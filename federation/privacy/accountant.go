package privacy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"promptfed/runtime/convert"
)

// RoundRelease describes the release of one round: the sum of the clipped updates of the drawn clients, with Gaussian
// noise.
type RoundRelease struct {
	Noise   float64 // standard deviation of the noise on the sum, divided by the clip norm
	Rate    float64 // q: with Poisson the probability of each client, otherwise the share of clients drawn
	Poisson bool
}

// Check reports values without a bound.
func (r RoundRelease) Check() error {
	if !(r.Noise >= 0) || math.IsInf(r.Noise, 0) || !(r.Rate >= 0 && r.Rate <= 1) {
		return fmt.Errorf("noise %v at a rate of %v; the noise must be finite and not negative, the rate between 0 "+
			"and 1", r.Noise, r.Rate)
	}
	return nil
}

// Divergence bounds the Rényi divergence of one round at an order above 1. Without noise it is infinite.
func (r RoundRelease) Divergence(order float64) float64 {
	switch {
	case r.Rate == 0:
		return 0
	case r.Noise == 0:
		return math.Inf(1)
	case r.Poisson:
		return poisson(r.Rate, r.Noise, order)
	}

	// Replacing one client's update changes the sum by up to 2C. Sampling never increases the divergence: Rényi
	// divergences of mixtures are at most the largest of their parts (van Erven and Harremoës, IEEE Trans. Inf. Theory
	// 2014, theorem 13).
	return math.Min(fixedSize(r.Rate, r.Noise/2, order), gaussian(r.Noise/2, order))
}

// Curve returns Divergence at Orders.
func (r RoundRelease) Curve() []float64 { return convert.Slice(Orders, r.Divergence) }

// Accountant counts the releases of each kind of round. Rounds differ in noise and rate when clients drop out.
type Accountant map[RoundRelease]int

// Curve returns the sum of the divergences of all rounds, at Orders. Divergences add up even if a round depends on
// earlier rounds (Mironov, CSF 2017, proposition 1).
func (s Accountant) Curve() []float64 {
	kinds := slices.SortedFunc(maps.Keys(s), func(a, b RoundRelease) int {
		return cmp.Or(cmp.Compare(a.Noise, b.Noise), cmp.Compare(a.Rate, b.Rate))
	})
	out := make([]float64, len(Orders))
	for _, r := range kinds { // sorted, so that rounding does not depend on the map's order
		if s[r] > 0 {
			floats.AddScaled(out, float64(s[r]), r.Curve())
		}
	}

	return out
}

// Epsilon returns the smallest epsilon, over Orders, at which all rounds together are (epsilon, delta)-private. The
// conversion is
//
//	epsilon = D + log(1 - 1/a) - log(delta a)/(a-1)
//
// of Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020, proposition 12, and
// Balle et al., Hypothesis Testing Interpretations and Rényi Differential Privacy, AISTATS 2020, theorem 21. Epsilon
// is 0 if the divergence bounds the total variation by delta (Bretagnolle and Huber: √(1-e^-D)).
func (s Accountant) Epsilon(delta float64) float64 {
	curve, best := s.Curve(), math.Inf(1)
	for i, a := range Orders {
		d := curve[i]
		if delta*delta+math.Expm1(-d) > 0 {
			return 0
		}
		best = math.Min(best, d+math.Log1p(-1/a)-math.Log(delta*a)/(a-1))
	}

	return math.Max(0, best)
}
