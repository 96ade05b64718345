package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// CoCoOp shifts every token of one text prompt "ctx" [tokens,w] by the output of a small network for the image's unit
// feature f,
//
//	h(f) = W2 relu(W1 f + b1) + b2,  P(f) = ctx + 1 h(f)ᵀ,
//
// and scores the image with the class features of its own prompt: the text tower runs over all classes for every image.
// Prompt and network are averaged (FedAvg of Zhou et al., Conditional Prompt Learning for Vision-Language Models, CVPR
// 2022, eq. 3). Notes:
//   - images go through the text tower in parts that fit into train.memory_gb; the run prints their number before it
//     starts. The gradients are those of the whole batch;
//   - the public code takes batches of 1, which is train.batch here; paper and code agree otherwise;
//   - the network begins as torch.nn.Linear does; the joint dimension D enters it, so clients must agree in it.
type CoCoOp struct {
	method.FedAvg
	prompts.OffsetContext `config:",squash"`

	Reduce int `config:"reduce" in:"1..hidden" help:"the network's hidden width is the embedding dimension over this"`
}

var coCoOpDef = layer.Def{Name: "cocoop", Title: "CoCoOp",
	Paper:   "FedAvg of Zhou et al., Conditional Prompt Learning for Vision-Language Models, CVPR 2022",
	Default: CoCoOp{OffsetContext: prompts.OffsetContext{Tokens: 4, Words: prompts.PhotoPrompt}, Reduce: 16}}

// Params declares, all shared, "ctx" [tokens,w], W1 and b1 as "meta/1/w" [D/reduce,D] and "meta/1/b", W2 and b2 as
// "meta/2/w" [w,D/reduce] and "meta/2/b".
func (m CoCoOp) Params(t method.ClientSpec) []method.Param {
	hidden := max(1, t.Dim/m.Reduce)
	out := append(m.Declare(t, "ctx", method.Shared), modules.Linear("meta/1", hidden, t.Dim)...)
	return append(out, modules.Linear("meta/2", t.Width, hidden)...)
}

// Start draws the network.
func (m CoCoOp) Start(global *method.Global) error {
	modules.InitLayers(global.Seed, global.Shared, "meta")
	return nil
}

// Logits scores each image with the class features [C,D] of its own prompt P(f), in all B·C texts (eq. 3).
func (m CoCoOp) Logits(scope *method.Scope) graph.Node {
	f := scope.Image()
	shift := modules.ApplyLinear(scope, "meta/2", modules.ApplyLinear(scope, "meta/1", f).ReLU()) // [B,w]
	ctx := m.AddWords(scope, shift.Unsqueeze(1).Add(scope.TrainedValue("ctx")))                   // [B,T,w]
	text := scope.TextFeatures(method.Prompt{Ctx: ctx})                                           // [B,C,D]
	return text.MatMul(f.Unsqueeze(2)).Squeeze(2).MulScalar(scope.Task().Scale)                   // [B,C]
}
