package loss

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
)

// FedAPPR averages one prompt over clients with different backbones: PromptFL (eq. 1-5) with the terms of Appr (eq.
// 6-9), so that `method: promptfl, with: [appr]` is the same computation.
//
// "Model-Heterogeneous Federated Prompt Learning", under review, eq. 1-9, algorithm S1; see Appr for what the paper
// leaves open.
type FedAPPR struct {
	prompts.Context `config:",squash"`
	Alignment       `config:",squash"`
}

var fedAPPRDef = layer.Def{Name: "fedappr", Title: "FedAPPR",
	Paper:   "Model-Heterogeneous Federated Prompt Learning, under review",
	Traffic: apprTraffic,
	Default: FedAPPR{prompts.DefaultContext, defaultAlignment}}

// Build returns Appr around PromptFL with the one prompt "ctx"; FedAPPR holds the options of both and is no method
// itself.
func (m *FedAPPR) Build() (method.Method, error) {
	return Appr{Method: promptFL{Context: m.Context}, Alignment: m.Alignment, names: []string{"ctx"}}, nil
}

// promptFL is PromptFL with one prompt for all classes.
type promptFL struct {
	method.FedAvg
	prompts.Context
}
