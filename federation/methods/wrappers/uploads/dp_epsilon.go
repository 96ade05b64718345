package uploads

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/privacy"
)

// share returns the number of clients whose noise adds up to Noise, with where: client.
func (m DP) share(drawn method.Sampling) float64 { return math.Max(1, m.Least*drawn.Size) }

// released returns what the accountant needs of a round with that many uploads. A server adds all of the noise. Where
// clients add it, the sum has the noise of the clients that uploaded. Drop-outs leave the sampling rate unchanged: they
// may depend on anything but the clients' examples.
func (m DP) released(drawn method.Sampling, uploads float64) privacy.RoundRelease {
	r := privacy.RoundRelease{Noise: m.Noise, Rate: drawn.Size / float64(drawn.Clients), Poisson: drawn.Poisson}
	if m.distributed() {
		r.Noise *= math.Sqrt(uploads / m.share(drawn))
	}
	return r
}

// known returns the same round for those who know which clients trained in it.
func known(r privacy.RoundRelease) privacy.RoundRelease {
	r.Rate = 1
	return r
}

// Promised returns the epsilon of that many rounds at most: with where: client, if only the share Least of the clients
// uploads. sampled holds against those who do not know which clients trained when, unsampled against those who do. Both
// hold against those who see the shared parameters of every round, but not against the server.
func (m DP) Promised(drawn method.Sampling, rounds int) (sampled, unsampled float64) {
	r := m.released(drawn, m.share(drawn))
	return privacy.Accountant{r: rounds}.Epsilon(m.Delta), privacy.Accountant{known(r): rounds}.Epsilon(m.Delta)
}

// Against returns the epsilon of that many rounds against the server, which sees sums of together uploads and knows
// which clients trained. With where: server it is infinite, as uploads have no noise.
func (m DP) Against(drawn method.Sampling, rounds, together int) float64 {
	if !m.distributed() {
		return math.Inf(1)
	}
	r := m.released(drawn, math.Min(float64(together), m.share(drawn)))
	return privacy.Accountant{known(r): rounds}.Epsilon(m.Delta)
}
