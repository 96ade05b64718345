package averaged

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// FedAPT averages a meta prompt "ctx" M [tokens,w] and a layer "query" Q [D,e] that classifies D domains. Each domain
// has a fixed random key K_d [tokens,w], drawn by the server from U[0,1). A client of domain d trains with the prompt
// M ⊙ (1 + K_d) and lets Q learn its domain,
//
//	loss = CE(s f·t_c(M ⊙ (1 + K_d)), y) + weight CE(Q v, d), v = 10 f,
//
// so that Q gets a gradient from the second term alone and M from the first. An image of any domain is classified with
// a prompt of its own, M ⊙ (1 + Σ_d a_d K_d), where with q = Q v, over its D entries,
//
//	a = softmax((q - mean q)/(std q · temp)), std with D-1.
//
// Su, Yang, Li, Xue, Federated Adaptive Prompt Tuning for Multi-Domain Collaborative Learning, AAAI 2024. Notes:
//   - public code uses v before normalisation. Here features are unit rows, and 10 is about their norm with CLIP. It
//     scales the steps of Q; tests do not depend on it;
//   - assign: prompts encodes all classes for every test image, as the paper; scores takes the scores of each domain's
//     prompt, D texts a class in all, and mixes these with a, which is the same where a is one-hot, as it nearly always
//     is at temp 0.01;
//   - the supervised code has a prompt for each class, [C,tokens,w] under one key, the unsupervised one for all. It can
//     have no prompt for each image here, so that class_specific: true goes with scores;
//   - domains: 0 makes each client a domain, as the paper's first setting; else they are the domains of clients' data
//     in the order of their names, and clients without any take turns;
//   - the server averages uniformly; in the code a client knows the key of its own domain only. Here all get all keys,
//     which are noise of the seed, for their tests;
//   - the unsupervised variant's pseudo-labels are not here.
//
// Names: apt/keys [D,tokens,w] and apt/domains [clients], the domain of each or -1, to everyone.
type FedAPT struct {
	aggregate.WeightedMean `config:",squash"`
	prompts.ClassContext   `config:",squash"`

	Domains int     `config:"domains" in:"0..hidden" help:"D, number of domains; 0: each client is a domain"`
	Weight  float64 `config:"weight" in:"0.." help:"weight of the domain loss"`
	Temp    float64 `config:"temp" in:"1e-6.." help:"temperature of the mixture of keys; near 0 one domain counts"`
	Assign  string  `config:"assign" in:"prompts|scores" help:"mixture in tests"`
}

var fedAPTDef = layer.Def{Name: "fedapt", Title: "FedAPT",
	Paper: "Su et al., Federated Adaptive Prompt Tuning for Multi-Domain Collaborative Learning, AAAI 2024",
	Default: FedAPT{WeightedMean: aggregate.UniformMean,
		ClassContext: prompts.ClassContext{Context: prompts.DefaultContext}, Weight: 1, Temp: 0.01,
		Assign: "prompts"}}

// Check refuses class_specific: true with assign: prompts, which would mix a prompt for each image and class.
func (m FedAPT) Check() error {
	if m.ClassSpecific && m.Assign == "prompts" {
		return errors.New("class_specific: true cannot mix a prompt for each image; set assign: scores")
	}
	return nil
}

// Names of the learned layer and of what the server sends; aptDomain is a client's own, [D].
const (
	aptQuery   = "query"
	aptKeys    = "apt/keys"
	aptDomains = "apt/domains"
	aptDomain  = "apt/domain"
)

// count is D.
func (m FedAPT) count(t method.ClientSpec) int {
	if m.Domains > 0 {
		return m.Domains
	}
	return t.Clients
}

// Params declares M as "ctx", [tokens,w] or with class_specific [C,tokens,w], and Q as "query" [D,e], both shared.
func (m FedAPT) Params(t method.ClientSpec) []method.Param {
	return append(m.Declare(t, method.Shared), method.Param{Name: aptQuery, Shape: []int{m.count(t), t.Dim}})
}

// query scores domains, [B,D].
func (m FedAPT) query(scope *method.Scope) graph.Node {
	return scope.Image().MulScalar(10).MatMulT(scope.Param(aptQuery))
}

// keys returns Σ_d a_d K_d [n,tokens,w] for rows of weights [n,D].
func (m FedAPT) keys(scope *method.Scope, a graph.Node) graph.Node {
	d, w := m.count(scope.Task()), scope.Task().Width
	return a.MatMul(scope.Broadcast(aptKeys, d, m.Tokens, w).Reshape(d, m.Tokens*w)).Reshape(-1, m.Tokens, w)
}

// text returns the class features of M ⊙ (1 + key), [C,e], or [B,C,e] of a key for each image.
func (m FedAPT) text(scope *method.Scope, key graph.Node) graph.Node {
	return scope.TextFeatures(method.Prompt{Ctx: scope.Param("ctx").Mul(key.AddScalar(1)), PerClass: m.ClassSpecific,
		Position: m.Position})
}

// Logits are those of tests: they mix the keys with a, or with assign: scores the scores of the domains' prompts. Loss
// does not read them.
func (m FedAPT) Logits(scope *method.Scope) graph.Node {
	t, image, q := scope.Task(), scope.Image(), m.query(scope)
	n := m.count(t)
	off := q.Sub(q.MeanKeep(-1))
	std := off.Square().SumKeep(-1).MulScalar(1 / float64(max(1, n-1))).AddScalar(1e-12).Sqrt()
	a := off.Div(std).MulScalar(1 / m.Temp).Softmax(-1) // [B,D]
	if m.Assign == "prompts" {
		return m.text(scope, m.keys(scope, a)).MatMul(image.Unsqueeze(2)).Squeeze(2).MulScalar(t.Scale)
	}

	var scores []graph.Node
	for _, key := range nn.Unbind(scope.Broadcast(aptKeys, n, m.Tokens, t.Width)) {
		scores = append(scores, scope.Cosine(image, m.text(scope, key)))
	}

	return graph.Stack(scores...).Mul(a.T().Unsqueeze(2)).Sum(0)
}

// Loss is the cross entropy with the prompt of the client's own domain, and weight times that of the domain scores. A
// client of no domain trains M without a key, and its second term is 0.
func (m FedAPT) Loss(scope *method.Scope, _ graph.Node) graph.Node {
	own := scope.State(aptDomain, m.count(scope.Task())).Reshape(1, -1)
	loss := scope.CrossEntropy(scope.Cosine(scope.Image(), m.text(scope, m.keys(scope, own).Squeeze(0))))
	domain := m.query(scope).LogSoftmax(-1).Mul(own).Sum(-1).Mean().MulScalar(-m.Weight)
	return loss.Add(scope.Term("domain", domain))
}

// Begin sets the client's own domain: none where the client joined in the middle of a round.
func (m FedAPT) Begin(local *method.Local) error {
	own := tensor.New(m.count(local.Task))
	if t := local.Broadcast[aptDomains]; t != nil && local.Task.Client < t.Len() {
		if d := int(t.Data[local.Task.Client]); d >= 0 && d < own.Len() {
			own.Data[d] = 1
		}
	}

	local.State[aptDomain] = own
	return nil
}

// Finish drops the client's own domain, which Begin sets in every turn. It uploads nothing of its own.
func (m FedAPT) Finish(local *method.Local, _ *method.Upload) error {
	delete(local.State, aptDomain)
	return nil
}

// Start draws the query, as torch.nn.Linear does, and the keys, and numbers the clients' domains.
func (m FedAPT) Start(global *method.Global) error {
	if q := global.Shared[aptQuery]; q != nil {
		modules.InitUniform(global.Seed, aptQuery, q, 1/math.Sqrt(float64(q.Shape[1])))
	}

	keys, r := tensor.New(m.count(global.Task), m.Tokens, global.Width), global.Rand("init", aptKeys)
	for i := range keys.Data {
		keys.Data[i] = float32(r.Float64())
	}

	global.Broadcast[aptKeys] = keys
	return m.place(global)
}

// Join numbers the domains of clients that joined.
func (m FedAPT) Join(global *method.Global, _ []int) error { return m.place(global) }

// place numbers the domains of clients without a number, after the domains that have numbers. Where clients claim their
// domains and there are too many, those of the fewest clients get no number: their clients are placed as clients of no
// domain.
func (m FedAPT) place(global *method.Global) error {
	out, most := tensor.New(global.Clients), m.count(global.Task)
	for i := range out.Data {
		out.Data[i] = -1
	}

	number, fresh := map[string]int{}, map[string]int{} // clients of each domain without a number
	if before := global.Broadcast[aptDomains]; before != nil {
		for k, d := range before.Data {
			if out.Data[k] = d; d >= 0 {
				number[global.Info(k).Domain] = int(d)
			}
		}
	}

	delete(number, "")
	for k := range global.Clients {
		name := global.Info(k).Domain
		if _, known := number[name]; !known && name != "" {
			fresh[name]++
		}
	}

	names, old := slices.Sorted(maps.Keys(fresh)), len(number)
	if m.Domains > 0 && global.Claimed && old+len(names) > most {
		slices.SortStableFunc(names, func(a, b string) int { return fresh[b] - fresh[a] })
		names = slices.Sorted(slices.Values(names[:max(0, most-old)]))
	}

	for i, name := range names {
		number[name] = old + i
	}

	if n := len(number); m.Domains > 0 && !global.Claimed && (n > most || n > 0 && n < most && global.AllJoined()) {
		return fmt.Errorf("fedapt: the clients belong to %d domains but options.domains is %d; set it to %[1]d", n,
			most)
	}

	for k := range global.Clients {
		if !global.HasJoined(k) || out.Data[k] >= 0 {
			continue
		}
		d, named := number[global.Info(k).Domain]
		if !named || m.Domains == 0 {
			d = k % most
		}
		out.Data[k] = float32(d)
	}

	global.Broadcast[aptDomains] = out
	return nil
}
