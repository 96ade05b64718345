package personalized

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/federation/privacy"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// DPFPL adds up a shared prompt "global" and a private one "local", both [tokens,w], and puts noise on the gradients
// of every batch. In each step it factorises local = U v + R by a power iteration from a random V0 [w,rank],
//
//	U = orth(local V0), V = orth(localᵀ U), v = Vᵀ,
//
// takes the gradients of the two factors, g_U = G vᵀ and g_v = Uᵀ G of the gradient G of local, shortens each to
// the norm C, adds Gaussian noise of standard deviation z C to every number, and puts together the gradient of local
//
//	g_U v + U g_v - U Uᵀ g_U v.
//
// The gradient of global is shortened to C too. Its noise is the server's, on the mean: with: [dp]. With rank = tokens,
// no clip and no noise this is G.
//
// Tran, Sun, Patterson, Milanova, Privacy-Preserving Personalized Federated Prompt Learning for Multimodal Large
// Language Models, ICLR 2025. Where there is a choice:
//   - the gradient is the projection of G on what the factors span, of the low-rank reparametrisation that the paper
//     builds on (Yu et al., ICML 2021); public code adds the last term and has a factor of 0.1;
//   - V has unit columns as well as U, as in the code, so that U v has singular values of 1 whatever local is;
//   - the code's server averages gradients after every batch. Here clients average what their steps made, which is the
//     same where a turn has one step (train.epochs: 1 and a batch of all examples, plain SGD): a dp with
//     clip lr C and noise z then adds the code's noise on the mean;
//   - noise is over C; the code's sigma is that of one example in a batch of B, z = sigma/B;
//   - noisy: all has clients put noise on the gradient of global too, so that no parameter leaves them without; losses,
//     and what wrappers upload beside parameters, have none.
//
// The code assumes that sqrt(R ln(1/delta))/epsilon is the noise of one example in R batches, but it clips the gradient
// of the batch, which one example can turn round, and makes more releases than one a round. Here each record notes
// epsilon_local, for delta and all rounds so far: what local, or with noisy: all both prompts, reveal of all of a
// client's examples together. Each of the steps releases the clipped gradients, of which other examples
// change each by 2C at most. A client takes no more steps in a round than epsilon assumes, and has trained in every
// round at worst. Without noise: all, local is made beside the global prompts, whose own epsilon (dp) adds to this one
// against those who see both. The noise comes from a secret of the client across machines (Local.Noise); in one process
// it comes from the run's seed, and the number is called epsilon_local_nominal.
//
// Traces have V0 as dpfpl/v0, and the noise in units of z C as dpfpl/u [tokens,rank], dpfpl/v [rank,w] and
// dpfpl/global.
type DPFPL struct {
	aggregate.WeightedMean `config:",squash"`
	prompts.Context        `config:",squash"`

	Rank  int     `config:"rank" in:"1..tokens" help:"rank of the factors of the local prompt"`
	Clip  float64 `config:"clip" in:"0.." help:"C, largest norm of each factor's and of global's gradient; 0: any"`
	Noise float64 `config:"noise" in:"0..1e6" help:"z, standard deviation of the noise on a gradient over clip"`
	Noisy string  `config:"noisy" in:"factors|all" help:"gradients that get noise: factors, or all (global's too)"`
	Steps int     `config:"steps" in:"0..steps"`
	Delta float64 `config:"delta" in:"1e-15..0.5" help:"delta of the recorded epsilon_local"`
}

// LongHelp implements configtags.LongHelp.
func (DPFPL) LongHelp() map[string]string {
	return map[string]string{
		"steps": "most steps that a client takes in a round under noise, which epsilon_local assumes; 0: no limit, " +
			"and no epsilon_local is recorded",
	}
}

var dpfplDef = layer.Def{Name: "dpfpl", Title: "DP-FPL", Traffic: layer.PromptTraffic,
	Paper: "Tran et al., Privacy-Preserving Personalized Federated Prompt Learning for Multimodal Large Language " +
		"Models, ICLR 2025",
	Default: DPFPL{WeightedMean: aggregate.UniformMean, Context: prompts.DefaultContext, Rank: 8, Clip: 10,
		Noisy: "factors", Delta: 1e-5}}

// Check refuses noise without a clip, and a local prompt that begins at zeros, which has no factors.
func (m DPFPL) Check() error {
	if m.Std == 0 {
		return check.OptionErrorf("init_std", " is 0; a local prompt of zeros has no factors: set it above 0")
	}
	return check.Clipped(m.Clip, m.Noise)
}

// Properties declares the mean of option weighting and, with noise, a layer of differential privacy.
func (m DPFPL) Properties() method.Properties {
	t := m.WeightedMean.Properties()
	t.Noise = m.Noise > 0
	return t
}

// Params declares "global", shared, and "local", private. The factors U and v are no parameters: each step computes
// them.
func (m DPFPL) Params(t method.ClientSpec) []method.Param {
	return append(m.Declare(t, "global", method.Shared), m.Declare(t, "local", method.Private)...)
}

// Logits compares images with the class features of the prompt global + local; factors and noise are in gradients
// alone.
func (m DPFPL) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), m.Features(scope, scope.Param("global").Add(scope.Param("local"))))
}

// AdjustGradients replaces the gradients by clipped and noisy ones.
func (m DPFPL) AdjustGradients(local *method.Local, gradients tensor.Map) error {
	random, err := m.rand(local, gradients)
	if err != nil {
		return err
	}

	p, full := linalg.Matrix(local.Private["local"]), linalg.Matrix(gradients["local"])
	rows, wide := p.Dims()
	rank := min(m.Rank, rows, wide)
	start := mat.NewDense(wide, rank, local.Draws.Normal(local.Rand, "dpfpl/v0", wide, rank))
	factorU, factorV := mat.Dense{}, mat.Dense{} // [T,r], [w,r]
	factorU.Mul(p, start)
	linalg.Orthonormalize(&factorU)
	factorV.Mul(p.T(), &factorU)
	linalg.Orthonormalize(&factorV)

	byU, byV := mat.Dense{}, mat.Dense{} // [T,r], [r,w]
	byU.Mul(full, &factorV)
	byV.Mul(factorU.T(), full)
	m.release(local.Draws, random, &byU, "dpfpl/u")
	m.release(local.Draws, random, &byV, "dpfpl/v")
	first, second, both := mat.Dense{}, mat.Dense{}, mat.Dense{}
	first.Mul(&byU, factorV.T())
	second.Mul(&factorU, &byV)

	both.Product(&factorU, factorU.T(), &first)
	first.Add(&first, &second)
	first.Sub(&first, &both)
	linalg.Store(gradients["local"], &first)
	global, noise := linalg.Matrix(gradients["global"]), ""
	if m.Noisy == "all" {
		noise = "dpfpl/global"
	}

	m.release(local.Draws, random, global, noise)
	linalg.Store(gradients["global"], global)
	return nil
}

// release shortens a gradient to the clip and adds noise, which draws records under a name; "" adds no noise.
func (m DPFPL) release(draws *method.Draws, r *rand.Rand, g *mat.Dense, noise string) {
	if far := mat.Norm(g, 2); m.Clip > 0 && far > m.Clip {
		g.Scale(m.Clip/far, g)
	}

	if rows, wide := g.Dims(); noise != "" && m.Noise > 0 {
		e := mat.NewDense(rows, wide, draws.Normal(r, noise, rows, wide))
		e.Scale(m.Noise*m.Clip, e)
		g.Add(g, e)
	}
}

// dpfplNoise names the source of a turn's noise.
const dpfplNoise = "dpfpl/noise"

// rand returns the source of a turn's noise. A secret source depends on all that the turn begins with: the same turn
// has the same noise, and any other turn of the round is refused.
func (m DPFPL) rand(local *method.Local, gradients tensor.Map) (*rand.Rand, error) {
	switch r, _ := local.Cache[dpfplNoise].(*rand.Rand); {
	case m.Noise == 0:
		return nil, nil
	case m.Steps > 0 && local.Steps >= m.Steps:
		return nil, fmt.Errorf("dpfpl: step %d of a round; epsilon_local assumes %d at most: raise options.steps, or "+
			"lower train.epochs", local.Steps+1, m.Steps)
	case r != nil:
		return r, nil
	case local.Noise == nil:
		return local.Rand, nil
	}

	rows, err := local.Memory()
	if err != nil {
		return nil, err
	}

	all := map[string][]float64{}
	for under, part := range map[string]tensor.Map{"rows/": rows, "gradient/": gradients, "shared/": local.Shared,
		"private/": local.Private, "down/": local.Broadcast, "kept/": local.State} { // later steps read the last two
		for name, t := range part {
			for _, x := range t.Data {
				all[under+name] = append(all[under+name], float64(x))
			}
			for _, x := range t.Ints {
				all[under+name] = append(all[under+name], float64(x))
			}
		}
	}

	r, _, err := local.Noise("dpfpl", linalg.Bytes(all))
	if err == nil {
		local.Cache[dpfplNoise] = r
	}

	return r, err
}

// Merge records epsilon of all rounds so far.
func (m DPFPL) Merge(global *method.Global, ups []method.Upload) error {
	name := "epsilon_local_nominal"
	if global.Noise != nil {
		name = "epsilon_local"
	}

	if e := m.Epsilon(global.Round + 1); !math.IsInf(e, 1) {
		global.Notes[name], global.Notes["delta_local"] = e, m.Delta
	}

	return m.WeightedMean.Merge(global, ups)
}

// Epsilon returns the epsilon of a client that trains in that many rounds; infinite where nothing bounds it.
func (m DPFPL) Epsilon(rounds int) float64 {
	if m.Noise == 0 || m.Steps == 0 {
		return math.Inf(1)
	}

	parts := 2.0
	if m.Noisy == "all" {
		parts = 3
	}

	// Each part has the norm C at most, all of them together √parts C.
	return privacy.Accountant{{Noise: m.Noise / math.Sqrt(parts), Rate: 1}: rounds * m.Steps}.Epsilon(m.Delta)
}
