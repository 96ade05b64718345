package methods

import "promptfed/federation/method"

// FedAPPR averages one prompt over clients with different backbones: PromptFL (eq. 1-5) with the terms of Appr (eq.
// 6-9), so that `method: promptfl, with: [appr]` is the same computation.
//
// "Model-Heterogeneous Federated Prompt Learning", under review, eq. 1-9, algorithm S1; see Appr for what the paper
// leaves open.
type FedAPPR struct {
	Context   `config:",squash"`
	Alignment `config:",squash"`
}

var fedAPPRDef = Def{Name: "fedappr", Title: "FedAPPR", New: newFedAPPR,
	Paper:   "Model-Heterogeneous Federated Prompt Learning, under review",
	Traffic: apprTraffic}

func newFedAPPR() Layer { return &FedAPPR{defaultContext, defaultAlignment} }

func (m *FedAPPR) Build(method.Method) (method.Method, error) {
	return Appr{Method: promptFLOf(m.Context), Alignment: m.Alignment, names: []string{"ctx"}},
		Join(m.Context.Check(), m.Alignment.Check())
}
