package loss

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Appr adds FedAPPR's two terms to the loss of a base method with a shared text prompt, which stays near the average
// (eq. 8) and, after a warm-up, learns to pass for an average before the server's discriminator (eq. 7), which tells
// past averages from this round's uploads (eq. 6). Over PromptFL this is FedAPPR.
//
// "Model-Heterogeneous Federated Prompt Learning", under review, eq. 6-9, algorithm S1. The variants of its ablation
// are lambda_a: 0 (nA), warmup: 0 (nW) and lambda_r: 0 (nR). There is no public code; where the paper is silent:
//   - the discriminator is Linear(w,8) - ReLU - Linear(8,1) - sigmoid without biases, as its 4,104 parameters tell, on
//     every token of a prompt, log-probabilities averaged over tokens;
//   - it is trained after each merge by disc_steps full steps of a new Adam with its usual rate (disc_optim, disc_lr),
//     on tokens divided by the root mean square of the average's entries (disc_norm: unit), on clients that of the
//     average that they received. Ours are chosen so that it learns to distinguish what can be distinguished: entries
//     of a prompt are near 0.02, and plain gradient descent on undivided entries (sgd, none) with a step of 0.001 a
//     round leaves the loss of eq. 6 at 2 ln 2 and the weights at their initial values, so that eq. 7 pulls along a
//     fixed random direction;
//   - a client starts every round from the average;
//   - "t > T0" counts rounds from 1: clients use no discriminator in the first T0 rounds. The server sends it in all
//     rounds and trains it first at the end of round T0+1. Clients use an untrained one in that round, although section
//     3.3.3 wants the warm-up to prevent this.
//
// Several shared prompts count as one, token after token. The pool takes the average as the layers inside make it, so a
// server optimizer belongs inside: with: [fedopt, appr].
type Appr struct {
	method.Method
	Alignment `config:",squash"`

	Prompts []string `config:"prompts" help:"shared prompts of the terms; empty: ctx, global, sigma or text/shared"`

	names []string // of the prompts, in the base method's order
}

// apprTraffic is FedAPPR's row of its table S6.
var apprTraffic = layer.Traffic{Formula: "m d 2 + d1 d2 + d2",
	Numbers: func(s layer.Sizes) int { return 2*s.Tokens*s.Width + (s.Width+1)*s.Hidden }}

var apprDef = layer.Def{Name: "appr", Title: "FedAPPR's terms",
	Paper:   "Model-Heterogeneous Federated Prompt Learning, under review",
	Traffic: apprTraffic,
	Default: Appr{Alignment: defaultAlignment}}

// sharedPromptNames are the names that base methods give to a shared text prompt.
var sharedPromptNames = []string{"ctx", "global", "sigma", "text/shared"}

// Build finds the prompts in the base method.
func (m *Appr) Build() (method.Method, error) {
	if _, has := layer.Of[Appr](m.Method); has {
		return nil, fmt.Errorf("the base method has these terms already; remove the wrapper")
	}

	if m.Adversary > 0 && method.Any(m.Method, func(p method.Properties) bool { return p.Directions }) {
		return nil, errors.New("its discriminator reads prompts, and fednova uploads directions; set lambda_a: 0")
	}

	shared, wanted := layer.SharedNames(m.Method), m.Prompts
	if len(wanted) == 0 {
		wanted = sharedPromptNames
	}

	for _, name := range shared {
		if slices.Contains(wanted, name) {
			m.names = append(m.names, name)
		}
	}

	if len(m.names) == 0 || len(m.Prompts) > 0 && len(m.names) < len(m.Prompts) {
		return nil, fmt.Errorf("it needs a shared text prompt called %s; the base method shares %s",
			strings.Join(wanted, ", "), layer.Enumerate(shared))
	}

	return *m, nil
}

// Properties declares that the server needs every client's own prompt for its discriminator. lambda_a: 0 leaves the
// mean to the layers inside.
func (m Appr) Properties() method.Properties {
	t := method.Properties{Mean: method.InnerWeights}
	if m.Adversary > 0 {
		t.Mean, t.Needs = "", "every client's prompt for its discriminator; set lambda_a: 0"
		t.Delays = []method.DelayedTerm{{Part: "FedAPPR's adversarial term", Option: "warmup", Rounds: m.Warmup}}
	}
	return t
}

// Alignment are the options of FedAPPR's terms.
type Alignment struct {
	Adversary float64 `config:"lambda_a" in:"0.." help:"weight of the adversarial term, eq. 7; 0 removes it"`
	Proximity float64 `config:"lambda_r" in:"0.." help:"weight of the proximity term, eq. 8; 0 removes it"`
	Warmup    int     `config:"warmup" in:"0.." help:"T0, rounds before the discriminator is used"`
	Hidden    int     `config:"hidden" in:"1..hidden" help:"hidden units of the discriminator"`
	Norm      string  `config:"disc_norm" in:"unit|none" help:"divisor of its input"`
	Optim     string  `config:"disc_optim" in:"adam|sgd" help:"discriminator optimizer, a new one each round"`
	Steps     int     `config:"disc_steps" in:"0..steps" help:"discriminator updates per round"`
	LR        float64 `config:"disc_lr" in:"0.." help:"discriminator learning rate"`
	Tested    string  `config:"view" in:"own|base" help:"parameters that are tested"`
}

var defaultAlignment = Alignment{Adversary: 0.1, Proximity: 0.01, Warmup: 20, Hidden: 8, Norm: "unit",
	Optim: "adam", Steps: 50, LR: 0.001, Tested: "own"}

// Names of the discriminator's weights [w,hidden] and [hidden,1], and of what the server keeps.
const (
	apprW1, apprW2 = "fedappr/w1", "fedappr/w2"
	apprPool       = "fedappr/pool" // followed by the round
	apprOn         = "fedappr/on"   // 1 once the warm-up is over
)

// View has clients tested with the prompt that they ended their own training with (view: own, as algorithm S1 returns
// personalised prompts), or as the base method's are (view: base).
func (m Appr) View() method.View {
	if m.Tested == "own" {
		return method.PersonalView
	}
	return m.Method.View()
}

// prompt returns all tokens [T,w] that the terms act on.
func (m Appr) prompt(scope *method.Scope) graph.Node {
	parts := make([]graph.Node, len(m.names))
	for i, name := range m.names {
		parts[i] = scope.TrainedValue(name)
		if w := scope.Task().Width; parts[i].Rank() != 2 || parts[i].Dim(1) != w {
			return scope.Graph().Fail("option prompts: %s is %v; the discriminator reads prompts of width %d", name,
				parts[i].Shape(), w)
		}
	}

	return graph.Concat(0, parts...)
}

// logOdds returns the discriminator's output [..,T,1] before the sigmoid for prompts [..,T,w]. average is the newest
// average [T,w]; its root mean square counts as 1e-3 at least.
func (m Appr) logOdds(ctx, average, w1, w2 graph.Node) graph.Node {
	if m.Norm == "unit" {
		rms := average.Square().Mean().Sqrt()
		ctx = ctx.Div(rms.Max(rms.ScalarLike(1e-3)))
	}
	return ctx.MatMul(w1).ReLU().MatMul(w2)
}

// Loss adds lambda_a (-log D), the mean over tokens (eq. 7), and lambda_r |P - Q|², the sum over all numbers (eq. 8),
// to the loss inside. The discriminator D and the received prompt Q are constants.
func (m Appr) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	ctx, w := m.prompt(scope), scope.Task().Width
	if m.Adversary > 0 {
		odds := m.logOdds(ctx, m.prompt(scope.Received()), scope.Broadcast(apprW1, w, m.Hidden),
			scope.Broadcast(apprW2, m.Hidden, 1))
		fool := odds.Neg().Softplus().Mean() // -log D, eq. 7
		loss = loss.Add(scope.Term("adversarial", fool.Mul(scope.Scalar(apprOn)).MulScalar(m.Adversary)))
	}

	if m.Proximity > 0 {
		near := ctx.Sub(m.prompt(scope.Received())).Square().Sum() // eq. 8
		loss = loss.Add(scope.Term("proximity", near.MulScalar(m.Proximity)))
	}

	return loss
}

func (m Appr) on(round int) bool { return round+1 > m.Warmup }

// Begin switches the adversarial term on after the warm-up by the scalar fedappr/on, so that all rounds have one graph.
func (m Appr) Begin(local *method.Local) error {
	local.Scalars[apprOn] = 0
	if m.on(local.Round) {
		local.Scalars[apprOn] = 1
	}
	return m.Method.Begin(local)
}

// Start draws the discriminator as torch.nn.Linear would be scaled: uniform within 1/sqrt(inputs).
func (m Appr) Start(global *method.Global) error {
	if m.Adversary > 0 {
		global.Broadcast[apprW1] = method.DrawUniform(global.Seed, apprW1, []int{global.Width, m.Hidden})
		global.Broadcast[apprW2] = method.DrawUniform(global.Seed, apprW2, []int{m.Hidden, 1})
	}
	return m.Method.Start(global)
}

// Merge lets the layers inside average. After the warm-up it adds the average to the pool, which keeps all past
// averages, and trains the discriminator on the pool and this round's uploads (eq. 6). The loss of its last step is the
// note discriminator_loss.
func (m Appr) Merge(global *method.Global, ups []method.Upload) error {
	if err := m.Method.Merge(global, ups); err != nil {
		return err
	}

	if m.Adversary == 0 || !m.on(global.Round) {
		return nil
	}

	global.State[apprPool+"/"+fmt.Sprintf("%06d", global.Round)] = m.join(global.Shared)
	pool := global.State.WithoutPrefix(apprPool)
	past := make([]*tensor.Tensor, 0, len(pool))
	for _, name := range pool.Names() {
		past = append(past, pool[name])
	}

	now := make([]*tensor.Tensor, len(ups))
	for i, u := range ups {
		now[i] = m.join(u.Shared)
	}

	disc := tensor.Map{apprW1: global.Broadcast[apprW1].Clone(), apprW2: global.Broadcast[apprW2].Clone()}
	rows := tensor.Map{"pool": tensor.Stack(past), "local": tensor.Stack(now), "average": m.join(global.Shared)}
	loss, err := global.Optimize(disc, rows, m.discriminate, m.Steps, optim.Config{Name: m.Optim, LR: m.LR})
	if err != nil {
		return fmt.Errorf("discriminator: %w", err)
	}

	global.Broadcast[apprW1], global.Broadcast[apprW2] = disc[apprW1], disc[apprW2]
	global.Notes["discriminator_loss"] = loss
	return nil
}

// join returns a copy of all tokens [T,w] that the terms act on.
func (m Appr) join(shared tensor.Map) *tensor.Tensor {
	out := tensor.New(0, shared[m.names[0]].Shape[1])
	for _, name := range m.names {
		out.Data = append(out.Data, shared[name].Data...)
		out.Shape[0] += shared[name].Shape[0]
	}
	return out
}

// discriminate returns the loss of eq. 6: -E log D(past averages) - E log(1 - D(uploads)), means over prompts and their
// tokens.
func (m Appr) discriminate(scope *method.Scope) graph.Node {
	input := func(name string, shape ...graph.Dim) graph.Node {
		return scope.Input(method.Input{Kind: method.BroadcastInput, Name: name}, graph.Float, shape)
	}
	tokens, w := graph.Sym("T"), graph.StaticDim(scope.Task().Width)
	odds := func(rows string) graph.Node {
		return m.logOdds(input(rows, graph.Sym(rows), tokens, w), input("average", tokens, w), scope.Param(apprW1),
			scope.Param(apprW2))
	}

	return odds("pool").Neg().Softplus().Mean().Add(odds("local").Softplus().Mean())
}
