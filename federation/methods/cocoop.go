package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// CoCoOp shifts every token of one text prompt "ctx" [tokens,w] by what a small network makes of the image's unit
// feature f,
//
//	h(f) = W2 relu(W1 f + b1) + b2,  P(f) = ctx + 1 h(f)ᵀ,
//
// W1 [D/reduce,D] and W2 [w,D/reduce] being "meta/1/w" and "meta/2/w", and scores the image with the class features of
// its own prompt: the text tower runs over all classes for every image. Prompt and network are averaged (FedAvg of Zhou
// et al., Conditional Prompt Learning for Vision-Language Models, CVPR 2022, eq. 3). Notes:
//   - images go through the text tower in parts of a step that fit train.memory_gb; the run says before it starts how
//     many that are. The gradients are those of the whole batch;
//   - the public code takes batches of 1, which is train.batch here; paper and code agree otherwise;
//   - the network begins as torch.nn.Linear does; the joint dimension D enters it, so clients must agree in it.
type CoCoOp struct {
	method.FedAvg
	WordContext `config:",squash"`
	Reduce      int `config:"reduce" help:"divisor of the embedding dimension that gives the network's hidden width"`
}

var coCoOpDef = Def{Name: "cocoop", Title: "CoCoOp", New: newCoCoOp,
	Paper: "FedAvg of Zhou et al., Conditional Prompt Learning for Vision-Language Models, CVPR 2022"}

func newCoCoOp() Layer {
	return &CoCoOp{WordContext: WordContext{Tokens: 4, Words: aPhoto}, Reduce: 16}
}

func (m *CoCoOp) Build(method.Method) (method.Method, error) {
	return *m, Join(m.Check(), Within("reduce", m.Reduce, 1, maxHidden))
}

func (m CoCoOp) Params(t method.ClientSpec) []method.Param {
	hidden := max(1, t.Dim/m.Reduce)
	out := append(m.Declare(t, "ctx", method.Shared), linear("meta/1", hidden, t.Dim)...)
	return append(out, linear("meta/2", t.Width, hidden)...)
}

// Start draws the network.
func (m CoCoOp) Start(g *method.Global) error {
	drawLayers(g.Seed, g.Shared, "meta")
	return nil
}

func (m CoCoOp) Logits(s *method.Scope) graph.Node {
	f := s.Image()
	shift := through(s, "meta/2", through(s, "meta/1", f).ReLU())           // [B,w]
	ctx := m.Prompt(s, shift.Unsqueeze(1).Add(s.Param("ctx")))              // [B,T,w]
	text := s.TextOf(method.Prompt{Ctx: ctx})                               // [B,C,D]
	return text.MatMul(f.Unsqueeze(2)).Squeeze(2).MulScalar(s.Task().Scale) // [B,C]
}
