package uploads

import (
	"fmt"
	"math"
	"math/rand/v2"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// Adaptive clipping moves DP's clip norm to a quantile of the norms of clients' updates: C <- C e^(-adapt (b -
// quantile)), where b is the share of a round's clients whose update was no longer than C, with noise of its own.
//
// Andrew et al., Differentially Private Learning with Adaptive Clipping, NeurIPS 2021, algorithm 1. The noise on the
// count is their m/20. A round's noise is split so that both together cost what noise says (their theorem 1): the
// updates' is z' with 1/z² = 1/z'² + 1/(2 m/20)². Name: dp/clip [1], which stays on the server.

// dpClip names the clip norm between rounds.
const dpClip = "dp/clip"

// counting returns the noise on the count of updates that are not clipped.
func counting(global *method.Global) float64 { return global.Sampling.Size / 20 }

// adapts checks before round 0 that a round has noise to split.
func (m DP) adapts(global *method.Global) error {
	if m.Adapt == 0 {
		return nil
	}

	if global.Sampling.Clients > 0 && m.Noise >= 2*counting(global) {
		return fmt.Errorf("dp: adapt also puts noise on a count of clients; with noise %v a round needs more than %v "+
			"clients, it has %v", m.Noise, 10*m.Noise, global.Sampling.Size)
	}

	global.State[dpClip] = tensor.Of([]float32{float32(m.Clip)}, 1)
	return nil
}

// now returns the clip norm of a round and the noise on its updates.
func (m DP) now(global *method.Global) (clip, noise float64) {
	stored := global.State[dpClip]
	if m.Adapt == 0 || stored == nil || stored.Len() != 1 {
		return m.Clip, m.Noise
	}

	noise = m.Noise
	if noise > 0 {
		half := 2 * counting(global)
		noise = 1 / math.Sqrt(1/(noise*noise)-1/(half*half))
	}

	return float64(stored.Data[0]), noise
}

// unclipped returns the sum over clients of 1/2 where the update's norm is at most clip, and of -1/2 elsewhere.
func (m DP) unclipped(global *method.Global, ups []method.Upload, clip float64) float64 {
	sum := 0.0
	if m.Adapt == 0 {
		return sum
	}

	for _, u := range ups {
		if linalg.Distance(u.Shared, global.Shared) <= clip {
			sum += 0.5
		} else {
			sum -= 0.5
		}
	}

	return sum
}

// adapt sets the next round's clip norm.
func (m DP) adapt(global *method.Global, sum, clip float64, r *rand.Rand) {
	if m.Adapt == 0 {
		return
	}

	if m.Noise > 0 {
		sum += counting(global) * global.Draws.Normal(r, "dp/clip", 1)[0]
	}

	share := sum/global.Sampling.Size + 0.5
	next := math.Min(check.MaxWeight, math.Max(1e-9, clip*math.Exp(-m.Adapt*(share-m.Quantile))))
	global.State[dpClip] = tensor.Of([]float32{float32(next)}, 1)
	global.Notes["clip"] = clip
}
