package uploads

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/federation/privacy"
	"promptfed/runtime/tensor"
)

// DP makes the shared parameters differentially private for clients: those who see them in every round learn little
// about whether a client took part, and about its data. A client's update, uploaded minus received parameters, is
// shortened to the norm C over all shared parameters together. To the sum of a round's updates Gaussian noise of
// standard deviation z C is added in every number, and both are divided by the number of clients that a round has, or
// has on average.
//
// McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018, algorithm 1 (DP-FedAvg) with
// the fixed denominator. Every client counts once: a weight by examples would reveal something about the data. Where
// there is a choice:
//   - where: server clips and adds the noise there; the server sees every single update. client clips and adds a share
//     of the noise on each client, of variance z² C²/(least m) with m clients in a round, so that a server which gets
//     sums only (secure aggregation) never sees less noise than epsilon assumes, as long as least m uploads arrive; a
//     round of fewer is refused. Without secure aggregation each upload has only its own share of the noise.
//   - adapt: moves C to a quantile of the updates' lengths, see dp_clipping.go;
//   - Across machines, noise comes from a secret of the side that adds it (Local.Noise, Global.Noise). In one process,
//     which is a simulation, it comes from the run's seed, so that a run can be repeated; those who know the seed can
//     remove the noise. There secure: true makes the run draw a key from the system's random source, for its noise and
//     for the clients of each round, and no two runs are alike.
//
// Layers inside that need more than the noisy mean are refused. Each round's record notes epsilon, for delta and all
// rounds so far, by package privacy; noise: 0 has none. It assumes that the sample of clients stays secret;
// epsilon_unsampled holds for those who know who trained too, as the server does.
//
// Names: dp/clients [1] with where: client, m, which the server sends and clients compare with their configuration; on
// the server alone dp/released [R], the uploads in each release so far, and dp/clip [1] with adapt.
type DP struct {
	method.Method
	Clip     float64 `config:"clip" in:"0.." help:"C, largest norm of a client's update; 0 turns the wrapper off"`
	Noise    float64 `config:"noise" in:"0..1e6" help:"z, standard deviation of the noise on the sum, divided by clip"`
	Adapt    float64 `config:"adapt" in:"0..10"`
	Quantile float64 `config:"quantile" in:"0..1" help:"quantile of the updates' norms that adapt moves clip to"`
	Delta    float64 `config:"delta" in:"1e-15..0.5" help:"delta of the recorded epsilon; below 1/clients"`
	Where    string  `config:"where" in:"server|client" help:"where updates are clipped and noise is added"`
	Least    float64 `config:"least" in:"0.01..1" help:"where: client: share of a round's clients that must upload"`
	Secure   bool    `config:"secure"`
}

// LongHelp implements configtags.LongHelp.
func (DP) LongHelp() map[string]string {
	return map[string]string{
		"adapt": "rate at which clip moves to a quantile of the updates' norms, with where: server; 0 keeps clip " +
			"constant, the paper uses 0.2",
		"secure": "draw noise and the clients of a round from a secret key instead of the seed, also in one process; " +
			"across machines both are always secret",
	}
}

var dpDef = layer.Def{Name: "dp", Title: "DP-FedAvg",
	Paper:   "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018",
	Suits:   layer.RequireShared,
	Default: DP{Clip: 1, Noise: 1, Quantile: 0.5, Delta: 1e-5, Where: "server", Least: 0.6}}

// Check refuses noise without a clip, and adapt where the server has no clip to move.
func (m DP) Check() error {
	if m.Adapt > 0 && (m.Where == "client" || m.Clip == 0) {
		return check.OptionErrorf("adapt", " moves a clip that the server applies; set where: server and a first clip")
	}
	return check.Clipped(m.Clip, m.Noise)
}

// Properties lets no wrapper be outside this one, and hides single clients. With where: client the uniform mean is
// enough for the server, with where: server it needs every client's own update, to clip it.
func (m DP) Properties() method.Properties {
	t := method.Properties{Mean: method.InnerWeights, Outermost: true, HidesClients: m.On(), Noise: m.On(),
		SecretNoise: m.On() && m.Secure}
	switch {
	case m.On() && m.Where == "server":
		t.Mean, t.Needs = "", "every client's own update, to clip it; set where: client"
	case m.On():
		t.Mean = method.Uniform
	}

	return t
}

// On reports whether the wrapper does anything; clip: 0 turns all of it off.
func (m DP) On() bool { return m.Clip > 0 }

func (m DP) distributed() bool { return m.On() && m.Where == "client" }

const dpClients = "dp/clients"

// Start returns an error for settings under which epsilon would say nothing or not hold: delta of 1/clients or more, a
// round of no fixed size with where: client, and with adapt a round too small for the noise on its count. It sends m
// with where: client.
func (m DP) Start(global *method.Global) error {
	if m.On() && m.Delta*float64(global.Sampling.Clients) >= 1 {
		return fmt.Errorf("dp: delta is %v with %d clients; it must be below 1/%[2]d", m.Delta, global.Sampling.Clients)
	}

	if m.distributed() {
		if global.Sampling.Poisson {
			return errors.New("dp: where: client needs a fixed number of clients in a round; set sampling: fixed, or " +
				"where: server")
		}
		global.Broadcast[dpClients] = tensor.Of([]float32{float32(global.Sampling.Size)}, 1)
	}

	if err := m.adapts(global); err != nil {
		return err
	}

	return m.Method.Start(global)
}

// Finish makes every client count once. With where: client it also shortens the update to C and adds the client's share
// of the noise, after all that the layers inside change; a server with another m is refused.
func (m DP) Finish(local *method.Local, up *method.Upload) error {
	if err := m.Method.Finish(local, up); err != nil || !m.On() {
		return err
	}

	// every client counts once, and nobody needs to know its number of examples
	if up.N = 1; !m.distributed() || local.Pretrains || local.Alone {
		return nil
	}

	n := local.Broadcast[dpClients]
	if n == nil || n.IsInt() || n.Len() != 1 || float64(n.Data[0]) != local.Sampling.Size {
		return fmt.Errorf("dp: the server's number of clients per round (%s) is not the %v of this client's "+
			"configuration; it runs another experiment", dpClients, local.Sampling.Size)
	}

	sum := updates{}
	sum.add(local.Received, up.Shared, m.Clip, 1)
	std := m.Noise * m.Clip / math.Sqrt(m.share(local.Sampling))
	r, _, err := m.rand(local.Noise, local.Rand, sum, std)
	if err != nil {
		return err
	}

	sum.noise(local.Draws, r, std)
	up.Shared = sum.from(local.Received, 1)
	return nil
}

// Merge bounds the updates, adds them up with the noise that clients did not add, divides by the number of clients that
// a round has on average, and notes epsilon of all rounds so far. Layers inside get one upload, the noisy mean. With
// where: client a round of fewer uploads than least m changes nothing (method.TooFewError).
func (m DP) Merge(global *method.Global, ups []method.Upload) error {
	if !m.On() {
		return m.Method.Merge(global, ups)
	}

	sum, arrived := zeros(global.Shared), 0
	clip, noise := m.now(global)
	for _, u := range ups {
		n, longest := 1, clip
		if m.distributed() {
			longest = m.longestNoisy(global)
			if u.Client == method.AggregatedClient {
				n, longest = u.N, math.Inf(1)
			}
		}
		sum.add(global.Shared, u.Shared, longest, float64(n))
		arrived += n
	}

	if least := m.Least * global.Sampling.Size; m.distributed() && float64(arrived) < least {
		return method.TooFewError(fmt.Sprintf("dp: %d clients uploaded; enough noise needs the uploads of %v of %v",
			arrived, math.Ceil(least), global.Sampling.Size))
	}

	short := m.unclipped(global, ups, clip)
	std := noise * clip
	if m.distributed() {
		std = 0 // clients added it
	}

	r, releases, err := m.rand(global.Noise, global.Rand("dp", strconv.Itoa(global.Round)), sum, std, short)
	if err != nil {
		return err
	}

	sum.noise(global.Draws, r, std)
	m.adapt(global, short, clip, r)
	m.note(global, arrived, releases)
	return m.Method.Merge(global, []method.Upload{{Client: method.AggregatedClient,
		N:      max(1, int(global.Sampling.Size)),
		Shared: sum.from(global.Shared, global.Sampling.Size), Extra: tensor.Map{}}})
}

// longestNoisy bounds the norm of one client's update with its noise. The noise of d numbers is longer than
// std (sqrt(d) + 6) with a probability below exp(-18).
func (m DP) longestNoisy(global *method.Global) float64 {
	d := 0
	for _, t := range global.Shared {
		d += t.Len()
	}
	return m.Clip * (1 + m.Noise/math.Sqrt(m.share(global.Sampling))*(math.Sqrt(float64(d))+6))
}

// dpReleased names how many clients uploaded to each release so far, of all rounds; below 0 where a round had several.
const dpReleased = "dp/released"

// note records what all rounds so far cost, by the noise that was in each sum: epsilon for those who do not know who
// trained when, and epsilon_unsampled for those who do, a client that trained every time being the worst case. Where
// the noise came from the seed the numbers are called epsilon_nominal and epsilon_nominal_unsampled: they are what the
// same rounds would cost with noise that nobody knows.
//
// A round that a server began again after a crash, with other uploads, is two releases, of one sample: what sampling
// adds for releases of samples of their own does not hold for them. Where clients add the noise, the two sums may
// differ in one upload, so that the second costs as much as one upload by itself.
func (m DP) note(global *method.Global, arrived, releases int) {
	if m.Noise == 0 { // there is no epsilon
		return
	}

	var list []float32
	if t := global.State[dpReleased]; t != nil {
		list = slices.Clone(t.Data)
	}

	if releases == 1 {
		list = append(list, float32(arrived))
	} else {
		list = append(list, -float32(max(1, arrived)))
	}

	for range releases - 1 {
		list = append(list, -1)
	}

	if global.State == nil {
		global.State = tensor.Map{}
	}

	global.State[dpReleased] = tensor.Of(list, len(list))
	sampled, unsampled := privacy.Accountant{}, privacy.Accountant{}
	for _, n := range list {
		r := m.released(global.Sampling, math.Abs(float64(n)))
		if n < 0 {
			r = known(r)
		}
		sampled[r]++
		unsampled[known(r)]++
	}

	name := "epsilon_nominal"
	if global.Noise != nil {
		name = "epsilon"
	}

	if e := sampled.Epsilon(m.Delta); !math.IsInf(e, 1) {
		global.Notes[name], global.Notes["delta"] = e, m.Delta
	}

	if e := unsampled.Epsilon(m.Delta); global.Sampling.Draws() && !math.IsInf(e, 1) {
		global.Notes[name+"_unsampled"], global.Notes["delta"] = e, m.Delta
	}
}

// rand returns the source of the noise on a sum: a secret one, or without a secret one from the run's seed.
// releases is how often something was released in the round.
func (m DP) rand(secret method.Noise, seeded *rand.Rand, sum updates, also ...float64) (r *rand.Rand, releases int,
	err error) {
	switch {
	case secret != nil:
		return secret(dpDef.Name, linalg.Bytes(sum, also...))
	case m.Secure:
		return nil, 0, errors.New("dp: option secure needs noise from a secret, which this run does not have")
	}
	return seeded, 1, nil
}

// updates are sums of updates of named tensors.
type updates map[string][]float64

func zeros(like tensor.Map) updates {
	u := updates{}
	for name, t := range like {
		u[name] = make([]float64, t.Len())
	}
	return u
}

// add adds n times the update from old to now, shortened to a norm.
func (u updates) add(old, now tensor.Map, norm, n float64) {
	if far := linalg.Distance(now, old); far > norm {
		n *= norm / far
	}

	for name, t := range now {
		if u[name] == nil {
			u[name] = make([]float64, t.Len())
		}
		for i, v := range t.Data {
			u[name][i] += n * (float64(v) - float64(old[name].Data[i]))
		}
	}
}

// noise adds Gaussian noise to every number. draws records it as dp/NAME, in units of std and without a shape.
func (u updates) noise(draws *method.Draws, r *rand.Rand, std float64) {
	if std == 0 {
		return
	}

	for _, name := range slices.Sorted(maps.Keys(u)) {
		for i, e := range draws.Normal(r, "dp/"+name, len(u[name])) {
			u[name][i] += std * e
		}
	}
}

// from returns old plus the sums over n.
func (u updates) from(old tensor.Map, n float64) tensor.Map {
	out := tensor.Map{}
	for name, t := range old {
		out[name] = tensor.New(t.Shape...)
		for i, v := range t.Data {
			out[name].Data[i] = float32(float64(v) + u[name][i]/n)
		}
	}

	return out
}

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
