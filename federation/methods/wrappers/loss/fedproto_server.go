package loss

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/check"
	"promptfed/runtime/tensor"
)

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
