package personalized

import (
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/projection"
)

var sdfedDef = layer.Def{Name: "sdfed", Title: "SDFed",
	Paper: "Di et al., SDFed: Bridging Local-Global Discrepancy via Subspace Refinement and Divergence " +
		"Control in Federated Prompt Learning, arXiv 2602.08590",
	Default: sdfed()}

// SDFed is FedPHA with SDFed's constants, under FedPHA's names: SDFed's lambda is ratio, its gamma alpha, S_s
// global_tokens and S_l local_tokens, its G_s and G_c the prompts "global" and "local". Loss, projection, averaging and
// test are the same formulas (SDFed eq. 8-14 and algorithm 1 are FedPHA's eq. 8-13 and algorithm 1).
//
// Di et al., SDFed: Bridging Local-Global Discrepancy via Subspace Refinement and Divergence Control in Federated
// Prompt Learning, arXiv 2602.08590. Its abstract links to anonymous code, which we have not seen. Where the paper
// contradicts itself or is silent:
//   - definition 1, algorithm 1 and the appendix keep the columns after floor(lambda w), projector: def1; equation 9
//     counts floor((1-lambda) w) of them, one less at w = 512 and lambda = 0.6, projector: eq9. Both cut inside the
//     null space of the shared prompt, whose rank is at most its length, and keep what hardly depends on the prompt
//     (see FedPHA), unlike exact-null, which is ours;
//   - algorithm 1 decomposes in every local step, section 4.2.5 once a round, which is the default of svd_every;
//   - lemma 4 treats the projection as a constant, so that is projector_grad: detach;
//   - local lengths of 4 to 64 tokens are given to clients in turn: local_tokens: [4, 8, 12, ...].
func sdfed() FedPHA {
	m := fedPHA
	m.Global, m.Local, m.Ratio, m.Alpha, m.Projector = 8, []int{8}, 0.6, 0.8, projection.Def1
	return m
}
