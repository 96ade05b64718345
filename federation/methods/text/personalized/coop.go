package personalized

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
)

// CoOp learns one text prompt on each client alone, or with class_specific one for each class; nothing is exchanged.
//
// Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022, eq. 2-3.
type CoOp struct {
	method.FedAvg
	prompts.ClassContext `config:",squash"`
}

var coopDef = layer.Def{Name: "coop", Title: "CoOp",
	Paper:   "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022",
	Default: CoOp{ClassContext: prompts.ClassContext{Context: prompts.DefaultContext}}}

// Params declares "ctx", private: [tokens,w], or with class_specific [C,tokens,w].
func (m CoOp) Params(t method.ClientSpec) []method.Param { return m.Declare(t, method.Private) }
