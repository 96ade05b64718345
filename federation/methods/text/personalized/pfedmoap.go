package personalized

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// PFedMoAP averages one text prompt "ctx" and lets each client mix it, by a gate of its own, with prompts of other
// clients, which the server sends unchanged. With r = D div dim, pool(v) every r-th channel of v, and K_c the pooled
// features of class c of the client's own prompt and of the others', the scores of an image x are
//
//	z_c = s pool(x)·A_c(x) + lambda s x·t_c, A_c(x) = Wo concat_h Σ_e a_ceh (Wv K_ce)_h,
//	a_ceh = softmax_e(kappa (Wq pool(x))_h·(Wk K_ce)_h),
//
// h being a head of the attention. The gate's four linear layers, "gate/q", k, v and o, are private. A client whose
// prompt the server does not have yet gets no others. It scores with s x·t_c, and its gate is not trained.
//
// Luo, Chen, Wu, Mixture of Experts Made Personalized: Federated Prompt Learning for Vision-Language Models, ICLR 2025,
// eq. 6-10. Notes:
//   - the others are those of the round before that are nearest to the client's own prompt in the pool of all last
//     uploads, as the paper says; public code draws them once for all, takes prompts of the running round, and passes
//     gates from client to client;
//   - the others' features are computed once a turn and are constants;
//   - gating_lr is the paper's rate for the gate, of its steps and of their weight decay; 0 trains the gate at the
//     round's rate.
//
// Names: moap/experts [E-1,T,w] and moap/known [E-1], 1 where there is one, to single clients, and likewise moap/tested
// and moap/tested_known of tests; moap/K, the last prompt of client K, on the server.
type PFedMoAP struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	Experts  int     `config:"experts" in:"2..256" help:"E, prompts that a client mixes, including its own"`
	Dim      int     `config:"gating_dim" in:"1..hidden" help:"d, approximate number of feature channels of the gate"`
	Heads    int     `config:"heads" in:"1..1024" help:"heads of the gate; fewer where they do not divide its channels"`
	Kappa    float64 `config:"kappa" in:"0.." help:"sharpness of the gate's attention"`
	Lambda   float64 `config:"lambda" in:"0.." help:"weight of the client's own prompt next to the mixture"`
	GatingLR float64 `config:"gating_lr" in:"0.." help:"learning rate of the gate; 0: that of the prompt"`
}

var pFedMoAPDef = layer.Def{Name: "pfedmoap", Title: "pFedMoAP",
	Paper: "Luo et al., Mixture of Experts Made Personalized: Federated Prompt Learning for Vision-Language Models, " +
		"ICLR 2025",
	Default: PFedMoAP{Context: prompts.DefaultContext, Experts: 10, Dim: 128, Heads: 8, Kappa: 10, Lambda: 0.5,
		GatingLR: 0.01}}

// Properties declares that the server needs every client's own prompt. Clients see prompts of single other clients, so
// that neither secure aggregation nor differential privacy covers this method.
func (PFedMoAP) Properties() method.Properties {
	return method.Properties{Needs: "every client's own prompt"}
}

// View is personal: a client is tested with the prompt that it trained, its gate and its others.
func (PFedMoAP) View() method.View { return method.PersonalView }

// Names of the gate's layers and of what the server sends and has; moapFeatures are a turn's constants.
const (
	moapGate     = "gate/"
	moapFeatures = "moap/features"
	moapPool     = "moap/"
)

// experts are the names of other clients' prompts in messages, and of the tensor that is 1 for those that exist.
type experts struct{ prompts, known string }

var (
	moapTurn = experts{"moap/experts", "moap/known"}
	moapTest = experts{"moap/tested", "moap/tested_known"}
)

// channels returns the feature channels that the gate reads.
func (m PFedMoAP) channels(t method.ClientSpec) (out []int) {
	for i := 0; i < t.Dim; i += max(1, t.Dim/m.Dim) {
		out = append(out, i)
	}
	return out
}

// Params declares "ctx" [tokens,w], shared, and the gate's layers, private, weights "/w" [d,d] and biases "/b" [d] with
// d the number of pooled channels. The code's layers start uniform within 1/√d, here normal with the same standard
// deviation.
func (m PFedMoAP) Params(t method.ClientSpec) []method.Param {
	out := m.Declare(t, "ctx", method.Shared)
	d := len(m.channels(t))
	std := 1 / math.Sqrt(3*float64(max(1, d)))
	for _, layer := range []string{"q", "k", "v", "o"} {
		for _, p := range modules.Linear(moapGate+layer, d, d) {
			p.Std, p.Owner = std, method.Private
			out = append(out, p)
		}
	}

	return out
}

// others returns the class features [E-1,C,D] of the other clients' prompts.
func (m PFedMoAP) others(scope *method.Scope, pool experts) graph.Node {
	var out []graph.Node
	for _, p := range nn.Unbind(scope.Broadcast(pool.prompts, m.Experts-1, m.Tokens, scope.Task().Width)) {
		out = append(out, m.Features(scope, p))
	}
	return graph.Stack(out...)
}

// Logits are those of tests: they mix in the others that the server sent for tests, and encode their prompts.
func (m PFedMoAP) Logits(scope *method.Scope) graph.Node {
	return m.mixed(scope, m.others(scope, moapTest), moapTest.known)
}

// Loss is the cross entropy of the same scores with the others of the turn, whose features Begin computed.
func (m PFedMoAP) Loss(scope *method.Scope, _ graph.Node) graph.Node {
	t := scope.Task()
	return scope.CrossEntropy(m.mixed(scope, scope.State(moapFeatures, m.Experts-1, t.Classes, t.Dim), moapTurn.known))
}

// mixed returns the scores [B,C] with other clients' features; there names the input that is 1 for those that exist.
func (m PFedMoAP) mixed(scope *method.Scope, others graph.Node, there string) graph.Node {
	g, client := scope.Graph(), scope.Task()
	features, own := scope.Image(), m.Features(scope, scope.Param("ctx"))
	alone := scope.Cosine(features, own)
	channels := m.channels(client)
	experts, classes, heads, wide := m.Experts, client.Classes, m.Heads, len(channels)
	for wide%heads != 0 {
		heads--
	}

	pool := func(n graph.Node) graph.Node { return n.Gather(n.Rank()-1, g.Ints(channels...)) }
	layer := func(n graph.Node, name string) graph.Node {
		return modules.ApplyLinear(scope, moapGate+name, n.Reshape(-1, wide))
	}
	image := pool(features)                                                  // [B,d]
	keys := pool(graph.Concat(0, own.Unsqueeze(0), others))                  // [E,C,d]
	q := layer(image, "q").Reshape(-1, heads, wide/heads).Transpose(1, 0, 2) // [h,B,d/h]
	k := layer(keys, "k").Reshape(experts, classes, heads, wide/heads).Transpose(2, 3, 1,
		0) // [h,d/h,C,E]
	scores := q.MatMul(k.Reshape(heads, wide/heads, classes*experts)).Reshape(heads, -1, classes, experts) // [h,B,C,E]

	known := graph.Concat(0, g.Const(tensor.Of([]float32{1}, 1)), scope.Broadcast(there, experts-1))
	a := scores.MulScalar(m.Kappa).Add(known.AddScalar(-1).MulScalar(-nn.MaskValue)).Softmax(-1) // of nobody's prompt 0
	v := layer(keys, "v").Reshape(experts, classes, heads, wide/heads).Transpose(2, 1, 0, 3)     // [h,C,E,d/h]
	mix := a.Transpose(0, 2, 1, 3).MatMul(v).Transpose(2, 1, 0, 3)                               // [B,C,h,d/h]
	mixture := layer(mix.Reshape(-1, wide), "o").Reshape(-1, classes, wide)                      // [B,C,d]
	z := mixture.Mul(image.Unsqueeze(1)).Sum(-1).MulScalar(client.Scale).ReshapeLike(alone)      // [B,C]
	count := scope.Broadcast(there, experts-1).Sum()
	return count.Greater(count.MulScalar(0)).Where(z.Add(alone.MulScalar(m.Lambda)), alone)
}

// Begin computes the others' features for all steps of the turn, and sets the learning rate of the gate.
func (m PFedMoAP) Begin(local *method.Local) error {
	if m.GatingLR > 0 {
		local.Rates = map[string]float64{}
		for _, p := range m.Params(local.Task) {
			if strings.HasPrefix(p.Name, moapGate) {
				local.Rates[p.Name] = m.GatingLR
			}
		}
	}

	if local.Broadcast[moapTurn.known] == nil { // it joined in the middle of a round
		m.nobody(local.Broadcast, local.Task.Width)
	}

	features, err := local.Eval(func(scope *method.Scope) graph.Node { return m.others(scope, moapTurn) })
	if err == nil {
		local.State[moapFeatures] = features
	}

	return err
}

// nobody sets that there are no prompts of other clients.
func (m PFedMoAP) nobody(sent tensor.Map, width int) {
	for _, pool := range []experts{moapTurn, moapTest} {
		sent[pool.prompts], sent[pool.known] = tensor.New(m.Experts-1, m.Tokens, width), tensor.New(m.Experts-1)
	}
}

// AdjustGradients freezes the gate of a client without prompts of others.
func (m PFedMoAP) AdjustGradients(local *method.Local, grads tensor.Map) error {
	for name := range grads {
		if name != "ctx" && local.Broadcast[moapTurn.known].MaxAbs() == 0 {
			local.Frozen = append(local.Frozen, name)
		}
	}
	return nil
}

// Finish drops the others' features, which hold for one turn. It uploads nothing beside the prompt.
func (m PFedMoAP) Finish(local *method.Local, _ *method.Upload) error {
	delete(local.State, moapFeatures)
	return nil
}

// Start sends all clients that there are no prompts of others yet.
func (m PFedMoAP) Start(global *method.Global) error {
	for k := range global.Clients {
		if sent := global.ExtrasFor(k); sent[moapTurn.known] == nil {
			m.nobody(sent, global.Width)
		}
	}
	return nil
}

// Merge puts the uploads into the pool, sends every client that has a prompt in it the nearest others, and averages the
// uploads by examples (FedAvg). A client that trained in a round is tested with the others of that turn, any other
// client with the newest ones.
func (m PFedMoAP) Merge(global *method.Global, ups []method.Upload) error {
	turn := map[int]tensor.Map{} // what clients trained with
	for _, u := range ups {
		global.State[moapPool+strconv.Itoa(u.Client)] = u.Shared["ctx"]
		turn[u.Client] = maps.Clone(global.ExtrasFor(u.Client))
	}

	if err := m.Start(global); err != nil { // for those that joined
		return err
	}

	m.send(global)
	for k := range global.Clients {
		from := turn[k]
		if from[moapTurn.known] == nil { // it did not train, or joined in the middle of it
			from = global.ExtrasFor(k)
		}
		to := global.ExtrasFor(k)
		to[moapTest.prompts], to[moapTest.known] = from[moapTurn.prompts], from[moapTurn.known]
	}

	return m.FedAvg.Merge(global, ups)
}

// send sends every client that has uploaded the prompts nearest to its own, the nearest first.
func (m PFedMoAP) send(global *method.Global) {
	var clients []int
	var prompts []tensor.Map
	for k := range global.Clients {
		if p := global.State[moapPool+strconv.Itoa(k)]; p != nil {
			clients, prompts = append(clients, k), append(prompts, tensor.Map{"ctx": p})
		}
	}

	far := linalg.SquaredDistances(prompts)
	for i, k := range clients {
		others := tensor.Order(len(clients), func(a, b int) int { return cmp.Compare(far[i][a], far[i][b]) })
		others = slices.DeleteFunc(others, func(j int) bool { return j == i })
		sent := global.ExtrasFor(k)
		m.nobody(sent, global.Width)
		for to, j := range others[:min(len(others), m.Experts-1)] {
			copy(sent[moapTurn.prompts].Row(to).Data, prompts[j]["ctx"].Data)
			sent[moapTurn.known].Data[to] = 1
		}
	}
}
