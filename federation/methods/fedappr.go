package methods

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// FedAPPR averages one prompt over clients with different backbones. Each client stays near the average (eq. 8) and,
// after a warm-up, learns to pass for an average before the server's discriminator (eq. 7), which tells past averages
// from this round's uploads (eq. 6). Clients are tested with the prompt that they ended their own training with.
//
// "Model-Heterogeneous Federated Prompt Learning", under review, eq. 4-9, algorithm S1. There is no public code; where
// the paper is silent:
//   - the discriminator is Linear(w,8) - ReLU - Linear(8,1) - sigmoid without biases, as its 4,104 parameters tell, on
//     every token of a prompt, log-probabilities averaged over tokens (disc_input: tokens), or on the mean
//     token (disc_input: mean);
//   - it is trained by disc_steps full steps of gradient descent with rate disc_lr after each merge;
//   - a client starts every round from the average (start: global) or from its own last prompt (start: own);
//   - "t > T0" counts rounds from 1: the first T0 rounds are without discriminator;
//   - the pool of past averages keeps the last `pool` ones, 0 for all.
type FedAPPR struct {
	method.Base
	Context   `config:",squash"`
	Adversary float64 `config:"lambda_a" help:"weight of eq. 7; 0 removes it"`
	Proximity float64 `config:"lambda_r" help:"weight of eq. 8; 0 removes it"`
	Warmup    int     `config:"warmup" help:"T0, rounds before the discriminator"`
	Hidden    int     `config:"hidden" help:"width of the discriminator's hidden layer"`
	Input     string  `config:"disc_input" help:"what the discriminator sees: tokens or mean"`
	Steps     int     `config:"disc_steps" help:"discriminator updates a round"`
	LR        float64 `config:"disc_lr" help:"discriminator learning rate"`
	Pool      int     `config:"pool" help:"past averages kept, 0 for all"`
	From      string  `config:"start" help:"where a client starts a round: global or own"`
}

func newFedAPPR() layer {
	return &FedAPPR{Context: defaultContext, Adversary: 0.1, Proximity: 0.01, Warmup: 20, Hidden: 8, Input: "tokens",
		Steps: 1, LR: 0.001, From: "global"}
}

func (m *FedAPPR) build(method.Method) (method.Method, error) {
	return *m, all(m.check(), within("lambda_a", m.Adversary, 0, maxWeight), within("lambda_r", m.Proximity, 0, maxWeight),
		within("warmup", m.Warmup, 0, math.MaxInt32), within("hidden", m.Hidden, 1, maxHidden),
		oneOf("disc_input", m.Input, "tokens", "mean"), within("disc_steps", m.Steps, 0, maxSteps),
		within("disc_lr", m.LR, 0, maxWeight), within("pool", m.Pool, 0, math.MaxInt32), oneOf("start", m.From, "global", "own"))
}

// Names of the discriminator's weights [w,hidden] and [hidden,1], and of what the server keeps.
const (
	apprW1, apprW2 = "fedappr/w1", "fedappr/w2"
	apprPool       = "fedappr/pool" // followed by the round
	apprOn         = "fedappr/on"   // 1 once the warm-up is over
)

func (m FedAPPR) Params(t method.Task) []method.Param { return m.params(t, method.Shared) }

func (m FedAPPR) Logits(s *method.Scope) graph.Node { return m.logits(s) }

func (m FedAPPR) View() method.View { return method.Own }

// logOdds is the discriminator before its sigmoid on prompts [..,T,w]: [..,T,1], or [..,1,1] on the mean token.
func (m FedAPPR) logOdds(ctx, w1, w2 graph.Node) graph.Node {
	if m.Input == "mean" {
		ctx = ctx.MeanKeep(-2)
	}
	return ctx.MatMul(w1).ReLU().MatMul(w2)
}

func (m FedAPPR) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.Base.Loss(s, logits)
	ctx, w := s.Param("ctx"), s.Task().Width
	if m.Adversary > 0 {
		odds := m.logOdds(ctx, s.Down(apprW1, w, m.Hidden), s.Down(apprW2, m.Hidden, 1))
		fool := odds.Neg().Softplus().Mean() // -log D, eq. 7
		loss = loss.Add(fool.Mul(s.Scalar(apprOn)).Scale(m.Adversary))
	}
	if m.Proximity > 0 {
		loss = loss.Add(ctx.Sub(s.Received().Param("ctx")).Square().Sum().Scale(m.Proximity)) // eq. 8
	}
	return loss
}

func (m FedAPPR) on(round int) bool { return round+1 > m.Warmup }

func (m FedAPPR) Begin(l *method.Local) error {
	l.Scalars[apprOn] = 0
	if m.on(l.Round) {
		l.Scalars[apprOn] = 1
	}
	if own, ok := l.Kept["ctx"]; ok && m.From == "own" {
		l.Shared["ctx"] = own.Clone()
	}
	return nil
}

func (m FedAPPR) Finish(l *method.Local, _ *method.Upload) error {
	if m.From == "own" {
		l.Kept["ctx"] = l.Shared["ctx"].Clone()
	}
	return nil
}

// Start draws the discriminator as torch.nn.Linear would be scaled: uniform within 1/sqrt(inputs).
func (m FedAPPR) Start(g *method.Global) error {
	if m.Adversary > 0 {
		g.Down[apprW1] = method.DrawUniform(g.Seed, apprW1, []int{g.Width, m.Hidden})
		g.Down[apprW2] = method.DrawUniform(g.Seed, apprW2, []int{m.Hidden, 1})
	}
	return nil
}

func (m FedAPPR) Merge(g *method.Global, ups []method.Upload) error {
	if err := m.Base.Merge(g, ups); err != nil {
		return err
	}
	if m.Adversary == 0 || !m.on(g.Round) {
		return nil
	}
	g.Kept[apprPool+"/"+fmt.Sprintf("%06d", g.Round)] = g.Shared["ctx"].Clone()
	pool := g.Kept.Under(apprPool)
	for names := pool.Names(); m.Pool > 0 && len(names) > m.Pool; names = names[1:] {
		delete(g.Kept, apprPool+"/"+names[0])
		delete(pool, names[0])
	}
	past := make([]*tensor.Tensor, 0, len(pool))
	for _, name := range pool.Names() {
		past = append(past, pool[name])
	}
	now := make([]*tensor.Tensor, len(ups))
	for i, u := range ups {
		now[i] = u.Shared["ctx"]
	}
	disc := tensor.Map{apprW1: g.Down[apprW1].Clone(), apprW2: g.Down[apprW2].Clone()}
	rows := tensor.Map{"pool": tensor.Stack(past), "local": tensor.Stack(now)}
	err := g.Fit(disc, rows, m.discriminate, m.Steps, m.LR)
	if err == nil {
		g.Down[apprW1], g.Down[apprW2] = disc[apprW1], disc[apprW2]
	}
	return err
}

// discriminate is eq. 6: -E log D(past averages) - E log(1 - D(uploads)), means over prompts and their tokens.
func (m FedAPPR) discriminate(s *method.Scope) graph.Node {
	odds := func(rows string) graph.Node {
		return m.logOdds(s.Down(rows, -1, m.Tokens, s.Task().Width), s.Param(apprW1), s.Param(apprW2))
	}
	return odds("pool").Neg().Softplus().Mean().Add(odds("local").Softplus().Mean())
}
