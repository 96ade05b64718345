package methods

import "promptfed/federation/method"

// FedVPT averages one prompt of the image tower, "prompt", and compares image features with those of the hand-written
// prompts (data.template); every client is tested with the average.
//
// There is no paper of its own and no code: it is the name under which federated prompt learning is compared with
// FedAvg of Jia et al., Visual Prompt Tuning, ECCV 2022, eq. 4-7, such as in GGTPC's tables. VPT learns a linear head
// as well; here CLIP's text features take its place, so that nothing but prompts travels.
type FedVPT struct {
	method.FedAvg
	Visual `config:",squash"`
}

var fedVPTDef = Def{Name: "fedvpt", Title: "FedVPT", New: newFedVPT,
	Paper: "FedAvg of Jia et al., Visual Prompt Tuning, ECCV 2022"}

func newFedVPT() Layer { return &FedVPT{Visual: defaultVisual} }

func (m *FedVPT) Build(method.Method) (method.Method, error) { return *m, m.Check() }

func (m FedVPT) Params(t method.ClientSpec) []method.Param {
	return m.Declare(t, "prompt", method.Shared)
}
