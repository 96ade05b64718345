package methods

import (
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/privacy"
	"promptfed/runtime/tensor"
)

// DP makes the shared parameters differentially private for clients: whoever sees them all, round by round, learns
// little of whether any one client took part, or of what data it has. A client's update, what it uploads less what it
// received, is shortened to the norm C over all shared parameters together. To the sum of a round's updates Gaussian
// noise of standard deviation z C is added in every number, and both are divided by the number of clients that a round
// has, or has on average.
//
// McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018, algorithm 1 (DP-FedAvg) with
// the fixed denominator. Every client counts once: a weight by examples would tell of the data. Where there is a
// choice:
//   - where: server clips and adds the noise there; the server sees every update as it is. client clips and adds a
//     share of the noise on each client, of variance z² C²/(least m) with m clients in a round, so that a server which
//     gets sums only (secure aggregation) never sees less noise than is reckoned with, as long as least m uploads
//     arrive; a round of fewer is refused. Without secure aggregation each upload has only its own share of the noise.
//   - adapt: moves C to a quantile of the updates' lengths, see dp_adapt.go;
//   - secure: false draws the noise from the run's seed, so that a run can be repeated; whoever knows the seed can take
//     it off again. true draws it from the system's random source, and no two runs are alike.
//
// Layers inside get one upload, the noisy mean. Those that need more of the clients are refused. Each round's record
// notes epsilon, for delta and all rounds so far, by package privacy; noise: 0 has none. It reckons with a sample of
// clients that stays secret; epsilon_unsampled holds for those who know who trained too, as the server does. clip: 0
// turns all of it off.
//
// Names: dp/clients [1] with where: client, m, which the server sends; dp/clip [1] with adapt, which stays on the
// server.
type DP struct {
	method.Method
	Clip     float64 `config:"clip" help:"C, longest update of a client; 0 turns the layer off"`
	Noise    float64 `config:"noise" help:"z, standard deviation of the noise on the sum, over clip"`
	Adapt    float64 `config:"adapt" help:"rate at which clip moves to a quantile of updates' lengths, with where: server; 0 keeps it, the paper has 0.2"`
	Quantile float64 `config:"quantile" help:"of updates' lengths that adapt moves clip to"`
	Delta    float64 `config:"delta" help:"for which epsilon is noted; below 1 over the number of clients"`
	Where    string  `config:"where" help:"of clipping and noise: server or client"`
	Least    float64 `config:"least" help:"share of a round's clients whose part of the noise is sure to arrive, with where: client"`
	Secure   bool    `config:"secure" help:"noise from the system's random source instead of the seed"`
}

var dpDef = Def{Name: "dp", Title: "DP-FedAvg", New: newDP,
	Paper: "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018"}

func newDP() Layer {
	return &DP{Clip: 1, Noise: 1, Quantile: 0.5, Delta: 1e-5, Where: "server", Least: 0.6}
}

func (m *DP) Build(inner method.Method) (method.Method, error) {
	err := Join(Within("clip", m.Clip, 0, maxWeight), Within("noise", m.Noise, 0, 1e6), Within("delta", m.Delta, 1e-15,
		0.5),
		Within("adapt", m.Adapt, 0, 10), Within("quantile", m.Quantile, 0, 1),
		OneOf("where", m.Where, "server", "client"), Within("least", m.Least, 0.01, 1), MustShare(inner))
	if m.Noise > 0 && m.Clip == 0 {
		err = Join(err, errors.New("option clip is 0; noise hides only what is clipped: give a clip, or set noise: 0 "+
			"too"))
	}
	if m.Adapt > 0 && (m.Where == "client" || m.Clip == 0) {
		err = Join(err, errors.New("option adapt moves a clip that the server applies; set where: server and a clip "+
			"to start from"))
	}
	if m.on() && err == nil {
		_, beside, needs := Averages(inner)
		if needs == nil && len(beside) > 0 {
			needs = fmt.Errorf("a layer inside uploads %s too", strings.Join(beside, ", "))
		} else if asked := StatisticNames(inner); needs == nil && len(asked) > 0 {
			needs = fmt.Errorf("clients answer the survey of %s too", strings.Join(asked, ", "))
		}
		if needs != nil {
			err = fmt.Errorf("%w; it would leave the clients without clipping and noise", needs)
		}
	}
	m.Method = inner
	return *m, err
}

func (m DP) Traits() method.Traits {
	t := method.Traits{Mean: method.AsInside, Outermost: true, HidesClients: m.on()}
	switch {
	case m.on() && m.Where == "server":
		t.Mean, t.Needs = "", "every client's own update to clip it; set where: client"
	case m.on():
		t.Mean = method.Uniform
	}
	return t
}

func (m DP) on() bool { return m.Clip > 0 }

func (m DP) distributed() bool { return m.on() && m.Where == "client" }

const dpClients = "dp/clients"

func (m DP) Start(g *method.Global) error {
	if m.on() && m.Delta*float64(g.Drawn.Of) >= 1 {
		return fmt.Errorf("dp: delta is %v with %d clients; it must be below 1/%[2]d", m.Delta, g.Drawn.Of)
	}
	if m.distributed() {
		if g.Drawn.Poisson {
			return errors.New("dp: with where: client a round needs a fixed number of clients; set sampling: fixed, " +
				"or where: server")
		}
		g.Broadcast[dpClients] = tensor.Of([]float32{float32(g.Drawn.Size)}, 1)
	}
	if err := m.adapts(g); err != nil {
		return err
	}
	return m.Method.Start(g)
}

func (m DP) Finish(l *method.Local, up *method.Upload) error {
	if err := m.Method.Finish(l, up); err != nil || !m.distributed() {
		return err
	}
	n := l.Broadcast[dpClients]
	if n == nil || n.IsInt() || n.Len() != 1 || n.Finite() >= 0 {
		return fmt.Errorf("dp: the server sent %v for %s; it runs another experiment", n, dpClients)
	}
	r, err := m.rand(l.Rand)
	if err != nil {
		return err
	}
	sum := updates{}
	sum.add(l.Received, up.Shared, m.Clip, 1)
	sum.noise(r, m.Noise*m.Clip/math.Sqrt(math.Max(1, m.Least*float64(n.Data[0]))))
	up.Shared, up.N = sum.from(l.Received, 1), 1
	return nil
}

func (m DP) Merge(g *method.Global, ups []method.Upload) error {
	if !m.on() {
		return m.Method.Merge(g, ups)
	}
	sum, arrived := zeros(g.Shared), 0
	clip, noise := m.now(g)
	for _, u := range ups {
		n, longest := 1, clip
		if m.distributed() {
			longest = math.Inf(1) // it was clipped before its noise
			if u.Client == method.Summed {
				n = u.N
			}
		}
		sum.add(g.Shared, u.Shared, longest, float64(n))
		arrived += n
	}
	if least := m.Least * g.Drawn.Size; m.distributed() && float64(arrived) < least {
		return fmt.Errorf("dp: %d clients uploaded; the noise reckoned with needs %v of %v", arrived, math.Ceil(least),
			g.Drawn.Size)
	}
	if !m.distributed() {
		r, err := m.rand(method.Rand(g.Seed, "dp", strconv.Itoa(g.Round)))
		if err != nil {
			return err
		}
		sum.noise(r, noise*clip)
		m.adapt(g, ups, clip, r)
	}
	m.note(g)
	return m.Method.Merge(g, []method.Upload{{Client: method.Summed, N: max(1, int(g.Drawn.Size)),
		Shared: sum.from(g.Shared, g.Drawn.Size), Extra: tensor.Map{}}})
}

// note records what all rounds so far cost: epsilon for those who do not know who trained when, and epsilon_unsampled
// for those who do, a client that trained every time being the worst case.
func (m DP) note(g *method.Global) {
	round := privacy.Round{Noise: m.Noise, Rate: g.Drawn.Size / float64(g.Drawn.Of), Poisson: g.Drawn.Poisson}
	put := func(name string, r privacy.Round) {
		if e := privacy.Epsilon(r.Curve(), g.Round+1, m.Delta); !math.IsInf(e, 1) {
			g.Notes[name], g.Notes["delta"] = e, m.Delta
		}
	}
	put("epsilon", round)
	if round.Rate < 1 {
		round.Rate = 1
		put("epsilon_unsampled", round)
	}
}

// rand is the source of the noise.
func (m DP) rand(seeded *rand.Rand) (*rand.Rand, error) {
	if !m.Secure {
		return seeded, nil
	}
	var key [32]byte
	if _, err := crypto.Read(key[:]); err != nil {
		return nil, fmt.Errorf("dp: the system gives no random numbers: %w", err)
	}
	return rand.New(rand.NewChaCha8(key)), nil
}

// updates are sums of moves of named tensors.
type updates map[string][]float64

func zeros(like tensor.Map) updates {
	u := updates{}
	for name, t := range like {
		u[name] = make([]float64, t.Len())
	}
	return u
}

// add adds n times the move from old to now, shortened to a norm.
func (u updates) add(old, now tensor.Map, norm, n float64) {
	if far := normOf(now, old); far > norm {
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

// noise adds Gaussian noise to every number.
func (u updates) noise(r *rand.Rand, std float64) {
	if std == 0 {
		return
	}
	order := tensor.Map{}
	for name := range u {
		order[name] = nil
	}
	for _, name := range order.Names() {
		for i := range u[name] {
			u[name][i] += std * r.NormFloat64()
		}
	}
}

// from gives old plus the sums over n.
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
