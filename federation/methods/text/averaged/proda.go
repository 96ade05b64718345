package averaged

import (
	"fmt"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// ProDA learns a distribution of class features from many text prompts, "prompts" [n,tokens,w]. The class name is in
// front in a quarter of them, in the middle in a quarter and at the end in half. The features of prompt k are G_kc,
// their mean over the prompts of a step is m_c (not normalised), and the deviations are d_kc = G_kc - m_c. The loss of
// an image of class y is the upper bound of the cross entropy of normally distributed class features,
//
//	z_c = s f·m_c + (s²/2) (1/n) Σ_k Σ_j f_j² (d_ky - d_kc)_j²,  s = exp(logit_scale),
//
// with the covariance of each class feature and between classes, dimension by dimension. The loss adds the similarity
// of the prompts, lambda Σ_{k≠l} |u_k·u_l| / (n(n-1)), where u_k is the unit feature of prompt k without a class.
// Tests use the means m_c of all prompts. The server averages prompt i of all clients (FedAvg of Lu et al., Prompt
// Distribution Learning, CVPR 2022, eq. 5-11). Notes:
//   - a step uses `together` of the prompts, with each position in proportion. The paper draws them. Here they follow
//     in turn, so that a trace determines them: step t of round r skips the prompts of t + r steps. The similarity is
//     that of all prompts.
//   - the covariance divides by the number of prompts.
type ProDA struct {
	method.FedAvg
	N        int     `config:"n" in:"2..tokens" help:"number of prompts; a multiple of 4 with position: mixed"`
	Tokens   int     `config:"tokens" in:"1..tokens" help:"tokens of each prompt"`
	Std      float64 `config:"init_std" in:"0.." help:"standard deviation of the initial prompts"`
	Position string  `config:"position" in:"mixed|end" help:"class name's position"`
	Together int     `config:"together" in:"1..n" help:"prompts per step; a multiple of 4 with position: mixed"`
	Lambda   float64 `config:"lambda" in:"0.." help:"weight of the prompts' similarity in the loss"`
}

var prodaDef = layer.Def{Name: "proda", Title: "ProDA",
	Paper:   "FedAvg of Lu et al., Prompt Distribution Learning, CVPR 2022",
	Default: ProDA{N: 32, Tokens: 16, Std: 0.02, Position: "mixed", Together: 4, Lambda: 0.1}}

// Check reports numbers of prompts that cannot have each position in proportion: with position: mixed n and together
// must be multiples of 4.
func (m ProDA) Check() error {
	if m.Position == "mixed" && (m.N%4 != 0 || m.Together%4 != 0) {
		return fmt.Errorf("options n and together are %d and %d; both must be multiples of 4 with position: mixed", m.N,
			m.Together)
	}
	return nil
}

// Params declares all n prompts as one tensor, "prompts" [n,tokens,w], shared; the place in it decides the class name's
// position.
func (m ProDA) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "prompts", Shape: []int{m.N, m.Tokens, t.Width}, Std: m.Std}}
}

// position returns the position of the class name in prompt k.
func (m ProDA) position(k int) string {
	switch {
	case m.Position == "mixed" && k < m.N/4:
		return "front"
	case m.Position == "mixed" && k < m.N/2:
		return "middle"
	}
	return "end"
}

// Logits compares images with the mean class features of all prompts.
func (m ProDA) Logits(scope *method.Scope) graph.Node {
	var texts []graph.Node
	for k, ctx := range nn.Unbind(scope.Param("prompts")) {
		texts = append(texts, scope.TextFeatures(method.Prompt{Ctx: ctx, Position: m.position(k)}))
	}
	return scope.Cosine(scope.Image(), graph.Stack(texts...).Mean(0))
}

// turns lists the prompts of a step: of each position its share, in turn.
func (m ProDA) turns(turn int) []int {
	var out []int
	for from := 0; from < m.N; {
		to := from
		for to < m.N && m.position(to) == m.position(from) {
			to++
		}
		share := m.Together * (to - from) / m.N
		for i := range share {
			out = append(out, from+(turn*share+i)%(to-from))
		}
		from = to
	}

	return out
}

// scalar returns the name of the number of the prompt at a place of a step.
func scalar(place int) string { return fmt.Sprintf("proda/%d", place) }

func (m ProDA) setTurn(local *method.Local, turn int) {
	for i, k := range m.turns(turn) {
		local.Scalars[scalar(i)] = float64(k)
	}
}

// Begin sets the numbers of the prompts of the first step, the scalars proda/0 and so on.
func (m ProDA) Begin(local *method.Local) error {
	m.setTurn(local, local.Round)
	return nil
}

// AdjustGradients changes no gradient. It sets the numbers of the prompts of the next step.
func (m ProDA) AdjustGradients(local *method.Local, _ tensor.Map) error {
	m.setTurn(local, local.Round+local.Steps+1)
	return nil
}

// Loss is the cross entropy of the bound z over the prompts of the step, whose numbers are scalars, so that all steps
// have one graph, and the similarity of all n prompts. It does not read the logits.
func (m ProDA) Loss(scope *method.Scope, _ graph.Node) graph.Node {
	prompts, image, client := scope.Param("prompts"), scope.Image(), scope.Task()
	var texts []graph.Node
	for i, k := range m.turns(0) { // whichever it is, it has the position of the place
		ctx := prompts.Gather(0, scope.Scalar(scalar(i)).Cast(graph.Int64))
		texts = append(texts, scope.TextFeatures(method.Prompt{Ctx: ctx, Position: m.position(k)}))
	}

	mean := graph.Stack(texts...).Mean(0) // [C,D]
	square := image.Square()              // [B,D]
	spread := scope.Graph().Scalar(0)
	for _, text := range texts {
		d := text.Sub(mean)          // [C,D]
		own := d.Rows(scope.Label()) // [B,D]
		cross := square.Mul(own)     // f² d_y
		ownTerm := cross.Mul(own)    // f² d_y²
		spread = spread.Add(ownTerm.SumKeep(-1)).Sub(cross.MatMulT(d).MulScalar(2)).Add(square.MatMulT(d.Square()))
	}

	bound := image.MatMulT(mean).MulScalar(client.Scale).
		Add(spread.MulScalar(client.Scale * client.Scale / 2 / float64(len(texts))))
	loss := scope.CrossEntropy(bound)
	if m.Lambda == 0 {
		return loss
	}

	var alone []graph.Node
	for _, ctx := range nn.Unbind(prompts) {
		alone = append(alone, scope.TextFeatures(method.Prompt{Ctx: ctx, NoClass: true}))
	}

	u := graph.Concat(0, alone...) // [n,D]
	like := u.MatMulT(u).Abs().Sum().AddScalar(-float64(m.N)).MulScalar(m.Lambda / float64(m.N*(m.N-1)))
	return loss.Add(scope.Term("likeness of prompts", like))
}
