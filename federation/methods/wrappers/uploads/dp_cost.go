package uploads

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/privacy"
)

// share is how many clients' shares of the noise add up to what Noise says, with where: client.
func (m DP) share(drawn method.Sampling) float64 { return math.Max(1, m.Least*drawn.Size) }

// released is what a round gives away in which so many clients uploaded. A server adds all of the noise however few
// they are. Of clients each adds its share, so that the noise in the sum is that of those that uploaded. Drop-outs
// leave the rate unchanged: they may depend on anything but the clients' examples.
func (m DP) released(drawn method.Sampling, uploads float64) privacy.Round {
	r := privacy.Round{Noise: m.Noise, Rate: drawn.Size / float64(drawn.Of), Poisson: drawn.Poisson}
	if m.distributed() {
		r.Noise *= math.Sqrt(uploads / m.share(drawn))
	}
	return r
}

// known is the same round for those who know who trained in it.
func known(r privacy.Round) privacy.Round {
	r.Rate = 1
	return r
}

// Promised is what so many rounds cost at most: with where: client, where no more clients upload than Least asks for.
// The first epsilon holds for those who do not know who trained when, the second for those who do; both for who sees
// the shared parameters of every round, but neither for the server.
func (m DP) Promised(drawn method.Sampling, rounds int) (sampled, unsampled float64) {
	r := m.released(drawn, m.share(drawn))
	return privacy.Spent{r: rounds}.Epsilon(m.Delta), privacy.Spent{known(r): rounds}.Epsilon(m.Delta)
}

// Against is what so many rounds cost against the server, which sees the uploads of so many clients together, as a sum,
// or of each by itself if that is 1. It knows who trained. With where: server it sees uploads without noise.
func (m DP) Against(drawn method.Sampling, rounds, together int) float64 {
	if !m.distributed() {
		return math.Inf(1)
	}
	r := m.released(drawn, math.Min(float64(together), m.share(drawn)))
	return privacy.Spent{known(r): rounds}.Epsilon(m.Delta)
}
