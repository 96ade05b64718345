package multimodal

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
)

// IVLP learns deep prompts of the text tower and of the image tower, each by itself, on cross entropy, and averages
// them (FedAvg of Khattak et al., MaPLe, CVPR 2023, table 1, independent V-L prompting). vision_depth: 0 with depth: 1
// is PromptFL. Other names for it are VLP, and FedVLP in FedTPG's tables: that is depth: 1, vision_depth: 1, words: "",
// init_std: 0.02, insert: fedtpg.
//
// 4 tokens in 9 blocks of each tower are the defaults of PromptSRC's public code; MaPLe's ablation has 2.
// with: [fedper] leaves a part on each client.
type IVLP struct {
	method.FedAvg
	prompts.Deep `config:",squash"`
}

var ivlpDef = layer.Def{Name: "ivlp", Title: "IVLP",
	Paper:   "FedAvg of Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023, independent prompts",
	Default: IVLP{Deep: prompts.DefaultDeep}}
