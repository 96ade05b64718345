package image

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
)

// FedVPT averages one prompt of the image tower, "prompt", and compares image features with those of the hand-written
// prompts (data.template); every client is tested with the average.
//
// There is no paper of its own and no code: it is the name under which federated prompt learning is compared with
// FedAvg of Jia et al., Visual Prompt Tuning, ECCV 2022, eq. 4-7, such as in GGTPC's tables. VPT learns a linear head
// as well; here CLIP's text features take its place, so that only prompts are sent.
type FedVPT struct {
	method.FedAvg
	prompts.Visual `config:",squash"`
}

var fedVPTDef = layer.Def{Name: "fedvpt", Title: "FedVPT",
	Paper:   "FedAvg of Jia et al., Visual Prompt Tuning, ECCV 2022",
	Default: FedVPT{Visual: prompts.DefaultVisual}}

// Params declares the only parameter, "prompt", shared; see Visual for its shape.
func (m FedVPT) Params(t method.ClientSpec) []method.Param {
	return m.Declare(t, "prompt", method.Shared)
}
