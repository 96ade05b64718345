package averaged

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/federation/methods/parts/routing"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// TRIP averages E prompts, "experts" [E,tokens,w], and classifies an image x with a mix of them, whose weights are read
// from its tokens X [N,v] behind the image tower's last block and learned by nobody:
//
//	P(x) = Σ_e π_e(x) P_e, z_c = s f(x)·t_c(P(x)), π(x) = routing(X, K, capacity), K [E,v] fixed random keys,
//
// (package routing), so that the text tower runs over all classes for every image, in training too. With
// q = softmax(s f(x)·t'_c), t' the unit mean of the templates' class features, which are not made unit before, the
// loss is
//
//	CE(z, y) - alpha mean_x Σ_c q_c log softmax(z)_c.
//
// Gong et al., Token-level Prompt Mixture with Parameter-free Routing for Federated Domain Generalization, IEEE TIP,
// arXiv 2504.21063. Notes:
//   - training routes with a capacity of 1 and tests with 2 (capacity, capacity_test). With 1 hardly a token is
//     dropped, and all weights are about 1/E;
//   - 4 experts of 32 tokens are the 65,536 numbers that the public code's README prints; its script has 8 of them. The
//     paper's abstract speaks of 1,000 numbers, which 2 experts of one token would be;
//   - average: the code also tests a running mean of the server's prompts over rounds r, weighted by the density of
//     Beta(beta, beta) at (r+1/2)/(R+1), R rounds, in which the first prompts count as round 0's do; ema has a moving
//     average of a given decay in its place. Clients train from the prompts themselves. All clients are tested with the
//     same mean, which the server also sends;
//   - keys are drawn by the server and sent in every round: orthogonal unit rows, or numbers from a normal or a uniform
//     distribution. The code also allows keys that are all 0 or all 1, and so equal; there is no such option here.
//
// A step takes memory for the text of each image; see train.memory_gb. Clients must agree in the image tower's width.
// Traces have the tokens that k-means begins at as constant/trip/starts [E].
// Names: trip/keys [E,v] and, unless average is none, trip/average [E,tokens,w] to everyone; trip/weight [1], the sum
// of the running mean's weights, stays on the server.
type TRIP struct {
	aggregate.WeightedMean `config:",squash"`
	prompts.Context        `config:",squash"`

	Experts      int      `config:"experts" in:"1..10" help:"E, prompts (experts) that are mixed"`
	Alpha        float64  `config:"alpha" in:"0.." help:"weight of the distillation from hand-written prompts"`
	Templates    []string `config:"templates"`
	Capacity     float64  `config:"capacity" in:"1.."`
	CapacityTest float64  `config:"capacity_test" in:"1.."`
	Iters        int      `config:"iters" in:"1..steps" help:"largest number of iterations of the routing"`
	Keys         string   `config:"keys" in:"orthogonal|normal|uniform" help:"how the experts' keys are drawn"`
	Average      string   `config:"average" in:"none|beta|ema"`
	Beta         float64  `config:"beta" in:"1e-3.." help:"for average beta: both parameters of the Beta distribution"`
	Decay        float64  `config:"decay" in:"0..1" help:"for average ema: decay of the moving average"`
}

// LongHelp implements configtags.LongHelp.
func (TRIP) LongHelp() map[string]string {
	return map[string]string{
		"templates": "hand-written prompts that are distilled: imagenet-7, or texts with {} for the class; empty: " +
			"data.template",
		"capacity": "most tokens of an image that an expert gets in training, as a multiple of an equal share of all " +
			"tokens",
		"capacity_test": "most tokens of an image that an expert gets in tests, as a multiple of an equal share of " +
			"all tokens",
		"average": "prompts that are tested: none (the server's of the last round), beta (their mean over rounds, " +
			"weighted by the density of a Beta distribution) or ema (their exponential moving average)",
	}
}

var tripDef = layer.Def{Name: "trip", Title: "TRIP",
	Paper: "Gong et al., Token-level Prompt Mixture with Parameter-free Routing for Federated Domain " +
		"Generalization, IEEE TIP, arXiv 2504.21063",
	Traffic: layer.Traffic{Formula: "E T d 2, E = 4, T = 32",
		Numbers: func(s layer.Sizes) int { return 2 * 4 * 32 * s.Width }},
	Default: TRIP{WeightedMean: aggregate.ExamplesMean, Context: prompts.Context{Tokens: 32, Position: "end",
		Std: 0.02}, Experts: 4, Alpha: 1, Templates: []string{"imagenet-7"}, Capacity: 1, CapacityTest: 2,
		Iters: 100, Keys: "orthogonal", Average: "none", Beta: 0.2, Decay: 0.99}}

// Names of what is learned and of what the server sends and keeps.
const (
	tripExperts = "experts"
	tripKeys    = "trip/keys"
	tripAverage = "trip/average"
	tripStarts  = "trip/starts"
	tripWeight  = "trip/weight"
)

// Check reports templates without a place {} for the class name.
func (m TRIP) Check() error { return prompts.CheckEnsemble("templates", m.Templates) }

// Properties declares the mean of option weighting, and takes the server's step where its running mean is tested: a
// later step would not enter it.
func (m TRIP) Properties() method.Properties {
	properties := m.WeightedMean.Properties()
	if m.Average != "none" {
		properties.Roles = map[method.Role]string{method.ServerStep: "set options.average: none"}
	}
	return properties
}

func (m TRIP) shape(w int) []int { return []int{m.Experts, m.Tokens, w} }

// Params declares the only parameter, "experts" [E,tokens,w], shared; the routing has none.
func (m TRIP) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: tripExperts, Shape: m.shape(t.Width), Std: m.Std}}
}

// scores returns the class scores [B,C] of experts [E,tokens,w] that are mixed by routing with a capacity.
func (m TRIP) scores(scope *method.Scope, experts graph.Node, capacity float64) graph.Node {
	client := scope.Task()
	switch {
	case client.Tokens == 0:
		return scope.Graph().Fail("the method needs the tokens of the image tower's last block, which backbone %s, a "+
			"ResNet or an exported model, does not provide", client.Backbone)
	case client.Tokens < m.Experts:
		return scope.Graph().Fail("option experts is %d, but an image has %d tokens on backbone %s; set it to these "+
			"at most", m.Experts, client.Tokens, client.Backbone)
	case client.VisionWidth < m.Experts && m.Keys == "orthogonal":
		return scope.Graph().Fail("option keys: orthogonal has %d experts, but the image tower of backbone %s has "+
			"only the width %d; lower experts, or set keys: normal", m.Experts, client.Backbone, client.VisionWidth)
	}

	route := routing.Routing{Experts: m.Experts, Iters: m.Iters, Capacity: capacity}
	scope.Note(tripStarts, route.InitialCenters(client.Tokens))
	tokens := scope.Input(method.Input{Kind: method.RowInput, Name: method.TokensInput}, graph.Float,
		graph.Rows("B", client.Tokens, client.VisionWidth))
	each := method.PerExample{X: route.Weights(tokens, scope.Broadcast(tripKeys, m.Experts, client.VisionWidth))}
	weights := scope.Graph().Placeholder(each, graph.Float, []int{-1, m.Experts})
	ctx := weights.MatMul(experts.Reshape(m.Experts, m.Tokens*client.Width)).Reshape(-1, m.Tokens, client.Width)
	text := scope.TextFeatures(method.Prompt{Ctx: ctx, Position: m.Position}) // [B,C,D]
	return text.MatMul(scope.Image().Unsqueeze(2)).Squeeze(2).MulScalar(client.Scale)
}

// Logits are those of tests: they route with capacity_test, and mix the running mean of the prompts unless average is
// none.
func (m TRIP) Logits(scope *method.Scope) graph.Node {
	if m.Average != "none" {
		return m.scores(scope, scope.Broadcast(tripAverage, m.shape(scope.Task().Width)...), m.CapacityTest)
	}
	return m.scores(scope, scope.Param(tripExperts), m.CapacityTest)
}

// Loss adds the distillation to cross entropy. Its scores are of the client's own prompts, routed with capacity; it
// takes the given ones where they are the same.
func (m TRIP) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	if m.Average != "none" || m.Capacity != m.CapacityTest {
		logits = m.scores(scope, scope.Param(tripExperts), m.Capacity)
	}

	loss := m.WeightedMean.Loss(scope, logits)
	if m.Alpha == 0 {
		return loss
	}

	hand := scope.HandTextFeatures(method.HandTexts{Templates: prompts.Ensemble(m.Templates), Raw: true})
	q := scope.Cosine(scope.Image(), hand).Softmax(-1)
	return loss.Add(scope.Term("distillation", q.Mul(logits.LogSoftmax(-1)).Sum(-1).Mean().MulScalar(-m.Alpha)))
}

// Start draws the keys, and begins the running mean.
func (m TRIP) Start(global *method.Global) error {
	width := global.Task.VisionWidth
	if width == 0 {
		return fmt.Errorf("trip: backbone %s, an exported model, does not provide the tokens of the image tower's "+
			"last block; convert a checkpoint", global.Task.Backbone)
	}

	keys, r := mat.NewDense(width, m.Experts, nil), global.Rand("init", tripKeys)
	for i := range keys.RawMatrix().Data {
		if keys.RawMatrix().Data[i] = r.NormFloat64(); m.Keys == "uniform" {
			keys.RawMatrix().Data[i] = r.Float64()
		}
	}

	if m.Keys == "orthogonal" {
		linalg.Orthonormalize(keys)
	}

	rows := tensor.New(m.Experts, width)
	linalg.Store(rows, mat.DenseCopyOf(keys.T()))
	if global.Broadcast[tripKeys] = rows; m.Average == "none" {
		return nil
	}

	if first := global.Shared[tripExperts]; first != nil {
		global.Broadcast[tripAverage] = first.Clone()
	}

	if m.Average == "beta" {
		global.State[tripWeight] = tensor.Of([]float32{float32(m.density(0, global.Rounds.Total()))}, 1)
	}

	return nil
}

// Begin returns an error for an image tower of another width than the keys.
func (m TRIP) Begin(local *method.Local) error {
	if keys := local.Broadcast[tripKeys]; keys != nil && keys.Shape[1] != local.Task.VisionWidth {
		return fmt.Errorf("trip: the keys are %d wide, as another client's image tower, and that of backbone %s is "+
			"%d; give all clients backbones of one width", keys.Shape[1], local.Task.Backbone, local.Task.VisionWidth)
	}
	return nil
}

// density returns the density of Beta(beta, beta) at the place of a round, up to a factor.
func (m TRIP) density(round, rounds int) float64 {
	x := (float64(round) + 0.5) / float64(rounds+1)
	return math.Pow(x*(1-x), m.Beta-1)
}

// Merge averages the prompts with the weights of option weighting and moves the running mean towards the result, by
// 1-decay (ema) or by the round's share of all weights so far (beta).
func (m TRIP) Merge(global *method.Global, ups []method.Upload) error {
	err, now := m.WeightedMean.Merge(global, ups), global.Shared[tripExperts]
	if err != nil || m.Average == "none" || now == nil {
		return err
	}

	share := 1 - m.Decay
	if m.Average == "beta" {
		sum := global.State[tripWeight]
		if sum == nil {
			return fmt.Errorf("trip: the server lost %s, which a run begins with", tripWeight)
		}
		w := m.density(global.Round, global.Rounds.Total())
		total := float64(sum.Data[0]) + w
		global.State[tripWeight], share = tensor.Of([]float32{float32(total)}, 1), w/total
	}

	average := global.Broadcast[tripAverage].Clone()
	for i, x := range now.Data {
		average.Data[i] += float32(share) * (x - average.Data[i])
	}

	global.Broadcast[tripAverage] = average
	return nil
}
