package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/optimaltransport"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// PLOT learns several text prompts, "prompts" [n,tokens,w], and scores an image by balanced transport between its M
// patches and the n class features: with the similarities S [M,n] the score is exp(logit_scale) <T,S>, where the plan
// T of the cost 1-S has the row sums 1/M and the column sums 1/n, with entropy of strength eps, and is a constant for
// gradients. Prompt i is averaged with prompt i (FedAvg of Chen et al., PLOT: Prompt Learning with Optimal Transport
// for Vision-Language Models, ICLR 2023, eq. 5-8, algorithm 1). Notes:
//   - 4 prompts of 16 tokens, eps 0.1, at most 100 iterations and a threshold of 0.01 on the mean move of the patches'
//     scaling are the public code's. Its mean is over all images and classes of a batch; ours ends for each image
//     and class by itself, so that scores do not depend on what they are computed with;
//   - pooled: true adds exp(logit_scale) f·t, t the unit mean of the class features of all prompts, as the code does
//     for ImageNet; the code takes the mean before it makes the features unit rows;
//   - patches are those of the backbone: a ResNet's cells through the attention pooling, a transformer's tokens through
//     the last norm and the projection. PLOT++ is not here.
type PLOT struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	N         int     `config:"n" in:"1..tokens" help:"prompts for each class"`
	Eps       float64 `config:"eps" in:"1e-4.." help:"weight of the entropy"`
	Iters     int     `config:"iters" in:"1..steps" help:"largest number of iterations"`
	Threshold float64 `config:"threshold" in:"0.." help:"iterations end when the mean change is below this"`
	Pooled    bool    `config:"pooled" help:"add the score of the whole image's feature"`
}

var plotDef = layer.Def{Name: "plot", Title: "PLOT",
	Paper: "FedAvg of Chen et al., PLOT: Prompt Learning with Optimal Transport for Vision-Language Models, " +
		"ICLR 2023",
	Default: PLOT{Context: prompts.DefaultContext, N: 4, Eps: 0.1, Iters: 100, Threshold: 0.01}}

// Params declares all n prompts as one tensor, "prompts" [n,tokens,w], shared, so that prompt i is averaged with prompt
// i.
func (m PLOT) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "prompts", Shape: []int{m.N, m.Tokens, t.Width}, Std: m.Std}}
}

// Logits solves the transport of each image and class and scores with its plan (eq. 5-8). A backbone without patch
// features fails the graph.
func (m PLOT) Logits(scope *method.Scope) graph.Node {
	var texts []graph.Node
	for _, ctx := range nn.Unbind(scope.Param("prompts")) {
		texts = append(texts, m.Features(scope, ctx))
	}

	score := optimaltransport.Entropic{Mass: 1 / float64(m.N), Eps: m.Eps, Iters: m.Iters, Threshold: m.Threshold,
		Stop: "pair", OnRows: true}.Scores(scope, "plot", texts...)
	if m.Pooled {
		score = score.Add(scope.Cosine(scope.Image(), graph.Stack(texts...).Mean(0).L2Normalize()))
	}

	return score
}
