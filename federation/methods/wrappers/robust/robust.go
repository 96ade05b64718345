package robust

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// Robust bounds what a few clients can do to the server's mean, whatever they upload. It changes or chooses uploads
// before the layers inside average them:
//   - median: the shared parameters of all uploads become their coordinate-wise median, and
//   - trimmed-mean: their coordinate-wise mean without the highest and the lowest trim·n values, rounded up as long as
//     one remains (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018, definitions 1 and 2), so that any mean
//     of them is that;
//   - krum: one upload remains, with the least sum of squared distances to its n-f-2 nearest ones, and
//   - multi-krum: the n-f uploads with the least sums remain (Blanchard et al., Machine Learning with Adversaries,
//     NeurIPS 2017, section 4), f being attackers; with f > 0 a round needs n >= 2f+3 uploads;
//   - geometric-median: the shared parameters of all uploads become the point with the least sum of distances to them,
//     by Weiszfeld's iterations (Pillutla et al., Robust Aggregation for Federated Learning, IEEE TSP 2022,
//     algorithm 2, with clients of equal weight);
//   - norm-clip: an upload's move away from what the server sent is shortened to the norm clip, over all shared
//     parameters together (Sun et al., Can You Really Backdoor Federated Learning?, arXiv 1911.07963, section 4).
//
// Medians and trimmed means, the geometric median among them, count every client once; weighting is of what is left to
// average with the other kinds.
//
// What stays undefended: tensors that layers inside upload beside the shared parameters (control variates, prototypes)
// and statistics. Krum drops them with the uploads that it drops; the other kinds keep all of them. With weighting:
// examples a client counts by the number of examples that it reports. Private prompts need no defence: they are never
// sent. Every kind also slows down honest clients whose data differ from most others.
type Robust struct {
	method.Method
	aggregate.Weighting `config:",squash"`

	Kind      string  `config:"kind" in:"median|trimmed-mean|krum|multi-krum|geometric-median|norm-clip"`
	Trim      float64 `config:"trim" in:"0..0.499" help:"share of values that trimmed-mean drops at each end"`
	Attackers int     `config:"attackers" in:"0..steps" help:"f, attackers per round that krums tolerate"`
	Clip      float64 `config:"clip" in:"0.." help:"largest norm of an update under norm-clip; 0: no clipping"`
}

// LongHelp implements configtags.LongHelp.
func (Robust) LongHelp() map[string]string {
	return map[string]string{"kind": "rule (medians and trimmed-mean count every client once, also with weighting: " +
		"examples)"}
}

var robustDef = layer.Def{Name: "robust", Title: "robust aggregation",
	Paper: "Yin et al., Byzantine-Robust Distributed Learning, ICML 2018; Blanchard et al., Machine " +
		"Learning with Adversaries, NeurIPS 2017",
	Suits:   layer.RequireShared,
	Default: Robust{Weighting: aggregate.Uniform, Kind: "median", Trim: 0.2, Attackers: 1, Clip: 1}}

// Properties lets no wrapper be outside this one, and lets the server see every client's own upload: a mean of them
// cannot be defended.
func (Robust) Properties() method.Properties { return method.Properties{Outermost: true} }

func (m Robust) krum() bool { return m.Kind == "krum" || m.Kind == "multi-krum" }

func (m Robust) enough(uploads int) error {
	if least := 2*m.Attackers + 3; m.krum() && m.Attackers > 0 && uploads < least {
		return fmt.Errorf("robust: %s against %d attackers needs %d uploads in a round; there are %d", m.Kind,
			m.Attackers, least, uploads)
	}
	return nil
}

// Tolerates returns how many of a round's uploads may lie without moving the mean beyond what the others say; 0 for
// norm-clip, which shortens each upload and excludes none.
func (m Robust) Tolerates(uploads int) int {
	switch {
	case m.Kind == "median" || m.Kind == "geometric-median":
		return (uploads - 1) / 2
	case m.Kind == "trimmed-mean":
		return m.trimmed(uploads)
	case m.krum() && m.enough(uploads) == nil:
		return m.Attackers
	}

	return 0
}

// trimmed returns how many values trimmed-mean drops at each end.
func (m Robust) trimmed(uploads int) int {
	return min(int(math.Ceil(m.Trim*float64(uploads)-1e-9)), (uploads-1)/2)
}

// Start reports rounds of too few clients before round 0.
func (m Robust) Start(global *method.Global) error {
	if err := m.enough(int(global.Sampling.Size)); err != nil {
		return fmt.Errorf("%w: raise participation or lower attackers", err)
	}
	return m.Method.Start(global)
}

// Merge replaces or chooses uploads by option kind and lets the layers inside average them with the weights of option
// weighting. With fewer uploads than krum needs the round changes nothing (method.TooFewError).
func (m Robust) Merge(global *method.Global, ups []method.Upload) error {
	if err := m.enough(len(ups)); err != nil {
		return method.TooFewError(err.Error())
	}

	switch m.Kind {
	case "median":
		ups = alike(ups, coordinates(ups, linalg.Median))
	case "trimmed-mean":
		drop := m.trimmed(len(ups))
		ups = alike(ups, coordinates(ups, func(v []float64) float64 { return linalg.Mean(v[drop : len(v)-drop]) }))
	case "krum", "multi-krum":
		keep := 1
		if m.Kind == "multi-krum" {
			keep = max(1, len(ups)-m.Attackers)
		}
		ups = nearest(ups, m.Attackers, keep)
	case "geometric-median":
		ups = alike(ups, weiszfeld(ups))
	case "norm-clip":
		ups = clipped(global.Shared, ups, m.Clip)
	}

	return m.Method.Merge(global, m.Counted(ups))
}

// alike returns uploads that all have the same shared parameters.
func alike(ups []method.Upload, shared tensor.Map) []method.Upload {
	out := slices.Clone(ups)
	for i := range out {
		out[i].Shared = shared
	}
	return out
}

// coordinates returns a statistic of each number of the shared parameters over uploads; merged gets sorted
// values.
func coordinates(ups []method.Upload, merged func([]float64) float64) tensor.Map {
	out, v := tensor.Map{}, make([]float64, len(ups))
	for name, first := range ups[0].Shared {
		out[name] = tensor.New(first.Shape...)
		for j := range out[name].Data {
			for i, u := range ups {
				v[i] = float64(u.Shared[name].Data[j])
			}
			slices.Sort(v)
			out[name].Data[j] = float32(merged(v))
		}
	}

	return out
}

// nearest returns the uploads with the smallest sums of squared distances to their n-f-2 nearest uploads, in the order
// of ups.
func nearest(ups []method.Upload, attackers, keep int) []method.Upload {
	n := len(ups)
	shared := make([]tensor.Map, n)
	for i, u := range ups {
		shared[i] = u.Shared
	}

	far := linalg.SquaredDistances(shared)
	score := make([]float64, n)
	for i := range far {
		others := slices.Delete(slices.Clone(far[i]), i, i+1)
		slices.Sort(others)
		for _, d := range others[:min(len(others), max(1, n-attackers-2))] {
			score[i] += d
		}
	}

	order := tensor.Order(n, func(a, b int) int { return cmp.Compare(score[a], score[b]) })[:min(keep, n)]
	slices.Sort(order)
	out := make([]method.Upload, len(order))
	for k, i := range order {
		out[k] = ups[i]
	}

	return out
}

// weiszfeld returns the geometric median of uploads: from their coordinate-wise median the iterations z = T = Σ w_i
// u_i / Σ w_i with w_i = 1/|z - u_i|, until z moves by a millionth of the harmonic mean of the distances. At η
// uploads themselves, which have no weight, it is T less min(1, η/|Σ w_i (u_i - z)|) of the way there (Vardi and
// Zhang, PNAS 2000, eq. 2.6).
func weiszfeld(ups []method.Upload) tensor.Map {
	z := coordinates(ups, linalg.Median)
	for range mostWeiszfeld {
		weight, total, here := make([]float64, len(ups)), 0.0, 0.0
		for i, u := range ups {
			d := linalg.Distance(z, u.Shared)
			if d == 0 {
				here++
				continue
			}
			weight[i] = 1 / d
			total += weight[i]
		}

		if total == 0 {
			break
		}

		next := tensor.Map{}
		for name, t := range z {
			next[name] = tensor.New(t.Shape...)
			for j := range t.Data {
				sum := 0.0
				for i, u := range ups {
					sum += weight[i] / total * float64(u.Shared[name].Data[j])
				}
				next[name].Data[j] = float32(sum)
			}
		}

		far := linalg.Distance(next, z)
		if here > 0 {
			stay := min(1, here/(total*far))
			for name, t := range next {
				next[name] = linalg.Elementwise(t, z[name],
					func(to, from float64) float64 { return to + stay*(from-to) })
			}
			far *= 1 - stay
		}

		if z = next; far <= 1e-6*float64(len(ups))/total {
			break
		}
	}

	return z
}

// mostWeiszfeld bounds the iterations of the geometric median, which converge linearly.
const mostWeiszfeld = 1000

// clipped returns uploads whose updates from old have at most that norm; 0 leaves them unchanged.
func clipped(old tensor.Map, ups []method.Upload, norm float64) []method.Upload {
	out := slices.Clone(ups)
	for i, u := range ups {
		far := linalg.Distance(u.Shared, old)
		if norm == 0 || far <= norm {
			continue
		}

		out[i].Shared = tensor.Map{}
		for name, t := range u.Shared {
			out[i].Shared[name] = linalg.Elementwise(old[name], t,
				func(o, v float64) float64 { return o + norm/far*(v-o) })
		}
	}

	return out
}
