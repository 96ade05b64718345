package personalized

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Powder averages a pool of text prompts "pool/0", "pool/1", ... and weighs them for each image: attention of its
// features x to private keys k_p, "keys" [P,D], mixes the scores of the prompts,
//
//	a_p(x) = softmax_p(sharpness <x, k_p/|k_p|>), logits = Σ_p a_p(x) exp(logit_scale) <x, t_p>,
//
// and the server averages each prompt with the weights n_k u_kp, where u_kp is the mean of a_p over client k's images,
// so that a prompt is made by the clients that use it.
//
// OUR ADAPTATION of Piao et al., Federated Continual Learning via Prompt-based Dual Knowledge Transfer, ICML 2024: its
// prompts join a vision transformer and are chosen and passed on by the correlation of a stream's tasks. Of that the
// pool, the attention and the weighting by use remain; there is no stream, and what is mixed are scores, since a text
// pass for each image would cost a batch of them.
type Powder struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	Prompts   int     `config:"prompts" in:"1..256" help:"number of prompts in the pool"`
	Sharpness float64 `config:"sharpness" in:"0.." help:"sharpness of the attention to keys; 0: equal weights"`
	Weighting string  `config:"weighting" in:"use|examples" help:"weights of clients in the average of a prompt"`
}

var powderDef = layer.Def{Name: "powder", Title: "Powder (adapted)",
	Paper: "after Piao et al., Federated Continual Learning via Prompt-based Dual Knowledge Transfer, ICML 2024",
	Default: Powder{Context: prompts.Context{Tokens: 4, Position: "end", Std: 0.02}, Prompts: 4, Sharpness: 5,
		Weighting: "use"}}

// Properties are FedAvg's unless clients count by use: then the server needs how much each client uses each prompt.
func (m Powder) Properties() method.Properties {
	if m.attends() && m.Weighting == "use" {
		return method.Properties{Needs: "how much each client uses each prompt; set weighting: examples"}
	}
	return m.FedAvg.Properties()
}

// powderUse names the mean attention [P] that a client uploads.
const powderUse = "powder/use"

func poolName(i int) string { return fmt.Sprint("pool/", i) }

// Params declares the prompts "pool/0" and so on, [tokens,w], shared, and with attention "keys" [P,D], private, normal
// with the deviation 1.
func (m Powder) Params(t method.ClientSpec) []method.Param {
	var out []method.Param
	for i := range m.Prompts {
		out = append(out, m.Declare(t, poolName(i), method.Shared)...)
	}

	if m.attends() {
		out = append(out, method.Param{Name: "keys", Shape: []int{m.Prompts, t.Dim}, Std: 1, Owner: method.Private})
	}

	return out
}

// attends reports whether prompts have weights of their own, so that keys are learned.
func (m Powder) attends() bool { return m.Prompts > 1 && m.Sharpness > 0 }

// attention returns the weights [B,P] of the prompts for each image.
func (m Powder) attention(scope *method.Scope) graph.Node {
	return scope.Image().MatMulT(scope.Param("keys").L2Normalize()).MulScalar(m.Sharpness).Softmax(-1)
}

// Logits mixes the scores of the prompts by the attention. With one prompt or sharpness: 0 it takes their mean, without
// keys.
func (m Powder) Logits(scope *method.Scope) graph.Node {
	var scores []graph.Node
	for i := range m.Prompts {
		scores = append(scores, scope.Cosine(scope.Image(), m.Features(scope, scope.Param(poolName(i)))))
	}

	all := graph.Stack(scores...) // [P,B,C]
	if !m.attends() {
		return all.Mean(0)
	}

	return all.Mul(m.attention(scope).T().Unsqueeze(-1)).Sum(0)
}

// Finish uploads u_kp, the mean of a_p over the client's training images with the parameters that it ends its turn
// with.
func (m Powder) Finish(local *method.Local, up *method.Upload) error {
	if !m.attends() || m.Weighting == "examples" {
		return nil
	}

	use, err := local.Eval(func(scope *method.Scope) graph.Node { return m.attention(scope).Mean(0) })
	if err == nil {
		up.Extra[powderUse] = use
	}

	return err
}

// Extras declares "powder/use" [P], a client's u_kp, and nothing where clients do not count by use.
func (m Powder) Extras(method.ClientSpec) []method.Extra {
	if !m.attends() || m.Weighting == "examples" {
		return nil
	}
	return []method.Extra{{Name: powderUse, Shape: []int{m.Prompts}}}
}

// isShare reports whether numbers are the mean of rows of a softmax.
func isShare(use []float32) bool {
	sum := 0.0
	for _, v := range use {
		if !(v >= 0) {
			return false
		}
		sum += float64(v)
	}

	return math.Abs(sum-1) < 1e-3
}

// Merge averages each prompt with the weights n_k u_kp, and leaves one that no client uses as it was. A use that is no
// share of the whole (numbers of at least 0 with the sum 1) is an error that names the client.
func (m Powder) Merge(global *method.Global, ups []method.Upload) error {
	if !m.attends() || m.Weighting == "examples" {
		return m.FedAvg.Merge(global, ups)
	}

	shared := tensor.Map{}
	for i := range m.Prompts {
		name := poolName(i)
		sum, total := make([]float64, global.Shared[name].Len()), 0.0
		for _, u := range ups {
			use := u.Extra[powderUse]
			if use == nil || use.Len() != m.Prompts || !isShare(use.Data) {
				return fmt.Errorf("client %d sent %v as %s; it must hold %d numbers of at least 0 with the sum 1",
					u.Client, use, powderUse, m.Prompts)
			}
			w := float64(u.N) * float64(use.Data[i])
			total += w
			for j, v := range u.Shared[name].Data {
				sum[j] += w * float64(v)
			}
		}

		shared[name] = global.Shared[name].Clone()
		for j := range sum {
			if total > 0 { // else no client used it, and it is unchanged
				shared[name].Data[j] = float32(sum[j] / total)
			}
		}
	}

	global.Shared = shared
	return nil
}
