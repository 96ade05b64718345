package personalized

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/optimaltransport"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// FedOTP scores an image by transport between its patches and two prompts of each class, "global", shared, and "local",
// private, both [tokens,w]. With the similarities S [M,2] of M patches to the two, the score is exp(logit_scale) <T,S>,
// where the plan T solves entropic transport for the cost 1-S: every patch sends at most 1/M (transport: unbalanced,
// eq. 9) or exactly that (balanced), and each prompt receives top_percent/2. T is a constant for gradients.
//
// Li et al., Global and Local Prompts Cooperation via Optimal Transport for Federated Learning, CVPR 2024, eq. 5-12,
// algorithm 1; the plan is found as in the public code, by fast Dykstra iterations with K = e^-(1-S)/eps from v = 1:
//
//	u = min(1/(M K v), 1), v = top_percent/2 / (Kᵀ u), T = diag(u) K diag(v)
//
// Notes:
//   - the paper does not say when the iterations end. Ours end for each image by itself, when v moved by less than
//     threshold in the mean over its classes and both prompts (stop: image), or for each image and class (stop: pair):
//     a score is then the same whatever images it is computed with. The code takes the mean over all images of a batch
//     (stop: code), with which scores depend on the grouping of the images, by up to 1e-3; with the balanced transport
//     its rule is the mean move of u over images, classes and patches;
//   - below eps 0.05, K, u and v are held as logarithms, which avoids NaN, unlike the code in half precision;
//   - the code caps top_percent at 1; FedPHA's comparison runs FedOTP with 1, where the transport is balanced anyhow;
//   - balanced is the code's Sinkhorn option: the iterations without the minimum and with all mass;
//   - in its first round the code trains every client, so that each has a local prompt; here a client that never
//     trained is tested with the one it drew.
type FedOTP struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	Transport string  `config:"transport" in:"unbalanced|balanced" help:"kind of optimal transport"`
	Top       float64 `config:"top_percent" in:"1e-3..1" help:"gamma, total mass that is transported; balanced uses 1"`
	Eps       float64 `config:"eps" in:"1e-4.." help:"weight of the entropy (the paper's lambda)"`
	Iters     int     `config:"iters" in:"1..steps" help:"largest number of iterations"`
	Threshold float64 `config:"threshold" in:"0.." help:"iterations end when the mean change is below this"`
	Stop      string  `config:"stop" in:"image|pair|code" help:"extent of the mean change"`
}

var fedOTPDef = layer.Def{Name: "fedotp", Title: "FedOTP",
	Paper:   "Li et al., Global and Local Prompts Cooperation via Optimal Transport, CVPR 2024",
	Traffic: layer.PromptTraffic,
	Default: FedOTP{Context: prompts.DefaultContext, Transport: "unbalanced", Top: 0.8, Eps: 0.1, Iters: 100,
		Threshold: 1e-3, Stop: "image"}}

// Params declares "global", shared, and "local", private, both [tokens,w], each client drawing a local prompt of its
// own.
func (m FedOTP) Params(t method.ClientSpec) []method.Param {
	return append(m.Declare(t, "global", method.Shared), m.Declare(t, "local", method.Private)...)
}

// Logits solves the transport of each image and class and scores with its plan (eq. 5-12). A backbone without patch
// features fails the graph.
func (m FedOTP) Logits(scope *method.Scope) graph.Node {
	global, local := m.Features(scope, scope.Param("global")), m.Features(scope, scope.Param("local"))
	transport := optimaltransport.Entropic{Mass: m.Top / 2, Bounded: m.Transport == "unbalanced", Eps: m.Eps,
		Iters: m.Iters, Threshold: m.Threshold, Stop: m.Stop}
	if !transport.Bounded {
		transport.Mass, transport.OnRows = 0.5, m.Stop == "code"
	}

	return transport.Scores(scope, "fedotp", global, local)
}
