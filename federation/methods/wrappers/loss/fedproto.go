package loss

import (
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// FedProto ties a client's representation of a class to the class's prototype on the server: loss + lambda ‖r -
// C_y‖². After training each client uploads the mean representation of each of its classes, and the server averages
// them class by class. Over CoOp only prototypes are sent, which is the published FedProto; over other base methods
// they are sent with the shared parameters.
//
// Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022, eq. 3-7, algorithm 1;
// lambda is the public code's, FedAPPR's tables have 0.1. The paper's regulariser is the L2 distance of
// representations, here squared and summed over dimensions (distance: sum). Its public code takes the mean over
// dimensions instead (distance: mean), of features that are not normalised; of unit rows that is 1/D as much, with
// which the term does nothing beside cross entropy at CLIP's logit scale. A frozen encoder's image features do not
// move, so that with CLIP the representation is something else (our reading, option of):
//   - text: the base method's class features, of the example's class;
//   - image: image features, for base methods that move them.
//
// Where there is a choice:
//   - weighting: examples is eq. 6, a client counts by its examples of a class; uniform is the public code's plain
//     mean;
//   - features of different encoders do not compare, so that prototypes are averaged among clients of one backbone.
//     Where there is one backbone, the server sends its prototypes to all, else each client those of its own;
//   - tests take the base method's scores; the public code can also take the nearest prototype.
//
// Names, in uploads and in what the server sends: proto/mean [C,D] and proto/n [C,1], the examples behind each row, 0
// where there is none.
type FedProto struct {
	method.Method
	aggregate.Weighting `config:",squash"`

	Lambda   float64 `config:"lambda" in:"0.." help:"weight of the distance to prototypes; 0 removes it"`
	Distance string  `config:"distance" in:"sum|mean" help:"reduction of the squared differences"`
	Of       string  `config:"of" in:"text|image" help:"features that represent a class: text or image"`
}

var fedProtoDef = layer.Def{Name: "fedproto", Title: "FedProto",
	Paper: "Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022",
	Traffic: layer.Traffic{Formula: "p l 2", Over: "coop", // FedAPPR's table S6
		Numbers: func(s layer.Sizes) int { return 2 * s.Dim * s.Classes }},
	Suits:   layer.RequireLearned("pulls features towards prototypes"),
	Default: FedProto{Weighting: aggregate.Examples, Lambda: 1, Distance: "sum", Of: "text"}}

// Properties declares that the server needs every client's prototypes; lambda: 0 leaves the mean to the layers inside.
func (m FedProto) Properties() method.Properties {
	if m.Lambda > 0 {
		return method.Properties{Needs: "every client's prototypes"}
	}
	return method.Properties{Mean: method.InnerWeights}
}

// Names of prototypes and of the examples behind them.
const (
	protoMean = "proto/mean"
	protoN    = "proto/n"
)

// represent returns the representations of classes [C,D], or with of: image of examples [B,D].
func (m FedProto) represent(scope *method.Scope) graph.Node {
	r := represent(m.Method, scope, m.Of)
	if scope.Graph().Err() == nil && !uses(scope, r, func(method.Param) bool { return true }) {
		other := map[string]string{"text": "image", "image": "text"}[m.Of]
		return scope.Graph().Fail("of: %s needs a base method that changes %s features; this one does not: use %s",
			m.Of, m.Of, other)
	}
	return r
}

// rows returns the representation of each example [B,D].
func (m FedProto) rows(scope *method.Scope) graph.Node {
	if m.Of == "text" {
		return m.represent(scope).Rows(scope.Label())
	}
	return m.represent(scope)
}

// Loss adds the distances to the loss inside, in the mean over the batch's examples; examples of a class y without
// prototype count 0.
func (m FedProto) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	if m.Lambda == 0 {
		return loss
	}

	classes := scope.Task().Classes
	n := scope.Broadcast(protoN, classes, 1).Reshape(-1)
	mean, there := scope.Broadcast(protoMean, classes, scope.Task().Dim), n.Greater(n.MulScalar(0)).Cast(graph.Float)
	far := m.rows(scope).Sub(mean.Rows(scope.Label())).Square().Sum(-1) // [B]
	if m.Distance == "mean" {
		far = far.MulScalar(1 / float64(scope.Task().Dim))
	}

	return loss.Add(scope.Term("prototype distance", far.Mul(there.Rows(scope.Label())).Mean().MulScalar(m.Lambda)))
}

// Finish uploads the client's prototypes and their numbers of examples. They are made with what it ends its training
// with (eq. 3 in algorithm 1).
func (m FedProto) Finish(local *method.Local, up *method.Upload) error {
	if m.Lambda == 0 {
		return m.Method.Finish(local, up)
	}

	features, err := local.Eval(m.represent)
	if err != nil {
		return fmt.Errorf("fedproto: %w", err)
	}

	up.Extra[protoMean], up.Extra[protoN] = aggregate.ClassMeans(local.Data.Labels(), local.Task.Classes,
		local.Task.Dim, func(example, class int) *tensor.Tensor {
			if m.Of == "text" {
				return features.Row(class)
			}
			return features.Row(example % features.Shape[0])
		})
	return m.Method.Finish(local, up)
}

// Extras declares proto/mean [C,D] and proto/n [C,1] beside the extras of the layers inside, and with lambda: 0
// neither.
func (m FedProto) Extras(t method.ClientSpec) []method.Extra {
	inner := m.Method.Extras(t)
	if m.Lambda == 0 {
		return inner
	}
	return append(inner, method.Extra{Name: protoMean, Shape: []int{t.Classes, t.Dim}},
		method.Extra{Name: protoN, Shape: []int{t.Classes, 1}, Counts: true})
}

// groups returns the clients, of those that the server knows, whose prototypes are averaged together.
func groups(global *method.Global) map[string][]int {
	out := map[string][]int{}
	for k, p := range global.Infos {
		if global.HasJoined(k) {
			out[p.Backbone] = append(out[p.Backbone], k)
		}
	}
	return out
}

// sent returns copies of the prototypes that a group was sent last, without any prototype where it was sent none.
func (FedProto) sent(global *method.Global, clients []int) (mean, n *tensor.Tensor) {
	from := global.Broadcast
	for _, k := range clients {
		if global.PerClient[k][protoMean] != nil {
			from = global.PerClient[k]
			break
		}
	}

	if p := from[protoMean]; p == nil || p.Shape[1] != global.Info(clients[0]).Dim {
		return tensor.New(global.Classes, global.Info(clients[0]).Dim), tensor.New(global.Classes, 1)
	}

	return from[protoMean].Clone(), from[protoN].Clone()
}

// resend lets a function change the prototypes of every group, and sends them.
func (m FedProto) resend(global *method.Global, send func(clients []int, mean, n *tensor.Tensor) error) error {
	if m.Lambda == 0 {
		return nil
	}

	groups, next := groups(global), map[string]tensor.Map{}
	for key, clients := range groups { // all before any is sent, which may take others' away
		mean, n := m.sent(global, clients)
		if err := send(clients, mean, n); err != nil {
			return err
		}
		next[key] = tensor.Map{protoMean: mean, protoN: n}
	}

	for key, prototypes := range next { // of one group to everyone, once all clients are known
		aggregate.Send(global, len(groups) == 1 && global.AllJoined(), groups[key], prototypes)
	}

	return nil
}

// asBefore changes nothing.
func asBefore([]int, *tensor.Tensor, *tensor.Tensor) error { return nil }

// Start sends prototypes of no class.
func (m FedProto) Start(global *method.Global) error {
	return check.Join(m.resend(global, asBefore), m.Method.Start(global))
}

// Join sends newcomers the prototypes of their group.
func (m FedProto) Join(global *method.Global, clients []int) error {
	return check.Join(m.resend(global, asBefore), m.Method.Join(global, clients))
}

// Begin lets a client that joined in the middle of a round train without prototypes.
func (m FedProto) Begin(local *method.Local) error {
	if m.Lambda > 0 && local.Broadcast[protoMean] == nil {
		local.Broadcast[protoMean] = tensor.New(local.Task.Classes, local.Task.Dim)
		local.Broadcast[protoN] = tensor.New(local.Task.Classes, 1)
	}
	return m.Method.Begin(local)
}

// Merge averages the prototypes of a class over the uploads of one backbone, by examples (eq. 6) or alike, and sends
// them. A class that no client of a round has keeps its prototype. Shared parameters are left to the layers inside.
func (m FedProto) Merge(global *method.Global, ups []method.Upload) error {
	err := m.resend(global, func(clients []int, mean, n *tensor.Tensor) error {
		theirs := slices.DeleteFunc(slices.Clone(ups), func(u method.Upload) bool {
			return !slices.Contains(clients, u.Client)
		})
		return aggregate.RenewClassMeans(mean, n, theirs, protoMean, protoN, m.Weighting.Weighting == "uniform")
	})

	if err != nil {
		return err
	}

	return m.Method.Merge(global, ups)
}
