package optimization

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// QFFL makes accuracies of clients more equal: the server minimises Σ p_k F_k^(q+1)/(q+1), in which clients with a
// higher loss F_k count more. With L the inverse of the round's learning rate and Δ_k = L (w - w_k) it makes the step
//
//	w <- w - Σ p_k F_k^q Δ_k / Σ p_k (q F_k^(q-1) |Δ_k|² + L F_k^q)   (q-FedAvg).
//
// F_k is the mean cross entropy of the class scores over all of a client's training examples with what the server sent,
// before it trains.
//
// Li, Sanjabi, Beirami, Smith, Fair Resource Allocation in Federated Learning, ICLR 2020, algorithm 2. Where there is a
// choice:
//   - weighting: the paper draws clients with probability p_k and then counts them alike (uniform); here every client
//     is drawn as likely as any other, and counts by examples;
//   - F_k is reported by the client and reveals its loss. A high value pulls the step to the client's update. A value
//     near 0 makes |Δ_k|²/F_k large and the step small. F_k therefore counts as at most `most` times the round's
//     median and at least the median over `most`. With one or two clients, one of them can move the median as well.
//
// q: 0 is the mean of the layers inside. Otherwise the step takes that mean's place. Names: qffl/loss [1], in uploads;
// qffl/loss_bounded, in notes, of how many clients it was bounded.
type QFFL struct {
	method.Method
	ReportedNumber `config:",squash"`

	Q float64 `config:"q" in:"0..10" help:"exponent: the more, the more a high loss counts; 0: plain mean"`
}

var qfflDef = layer.Def{Name: "qffl", Title: "q-FedAvg",
	Paper:   "Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020",
	Suits:   layer.RequireShared,
	Default: QFFL{ReportedNumber: ReportedNumber{Weighting: aggregate.Examples, Most: 10}, Q: 0.2}}

// Properties takes the server's step, which needs every client's loss and update, and warns where nothing bounds the
// losses. q: 0 needs the mean alone.
func (m QFFL) Properties() method.Properties {
	return m.properties(m.Q > 0, "every client's loss and update; set q: 0")
}

// qfflLoss names what a client uploads.
const qfflLoss = "qffl/loss"

// Extras declares qffl/loss [1], a client's F_k, beside the extras of the layers inside, and with q: 0 nothing.
func (m QFFL) Extras(t method.ClientSpec) []method.Extra {
	return m.extras(m.Q > 0, m.Method.Extras(t), qfflLoss)
}

// losses returns the cross entropy [B] of each example.
func (m QFFL) losses(scope *method.Scope) graph.Node {
	own := graph.OneHot(scope.Label(), scope.Task().Classes)
	return m.Logits(scope).LogSoftmax(-1).Mul(own).Sum(-1).Neg()
}

// Begin computes F_k from the scores of the layers inside, before the first step, and keeps it for Finish; q: 0 needs
// none.
func (m QFFL) Begin(local *method.Local) error {
	if m.Q > 0 {
		rows, err := local.Eval(m.losses)
		if err != nil {
			return fmt.Errorf("qffl: %w", err)
		}
		sum := 0.0
		for _, v := range rows.Data {
			sum += float64(v)
		}
		local.Scalars[qfflLoss] = sum / float64(rows.Len())
	}

	return m.Method.Begin(local)
}

// Finish uploads the F_k of the turn's beginning, beside what the layers inside upload.
func (m QFFL) Finish(local *method.Local, up *method.Upload) error {
	if m.Q > 0 {
		up.Extra[qfflLoss] = tensor.Of([]float32{float32(local.Scalars[qfflLoss])}, 1)
	}
	return m.Method.Finish(local, up)
}

// Merge lets the layers inside merge, for what they keep, and then steps from the parameters before that by the formula
// of algorithm 2. F_k counts 1e-10 more, so that powers of 0 are finite; a learning rate of 0 has L = 0.
func (m QFFL) Merge(global *method.Global, ups []method.Upload) error {
	inverseRate := 0.0
	if global.LR > 0 {
		inverseRate = 1 / global.LR
	}

	var losses []float64
	var err error
	if m.Q > 0 {
		if losses, err = m.numbers(global, ups, qfflLoss, true); err != nil {
			return err
		}
	}

	old, err := m.Average(m.Method, global, ups)
	if err != nil || m.Q == 0 || len(ups) == 0 {
		return err
	}

	counts, below := make([]float64, len(ups)), 0.0 // over L, so that Δ_k are moves
	for i, u := range m.Above(m.Method).Counted(ups) {
		f, far := losses[i]+1e-10, linalg.Distance(u.Shared, old) // the 1e-10 keeps powers of 0 finite
		counts[i] = float64(u.N) * math.Pow(f, m.Q)
		below += counts[i] * (1 + m.Q*inverseRate*far*far/f)
	}

	global.Shared = old.Clone()
	for i, u := range ups {
		global.Shared.Axpy(counts[i]/below, difference(u.Shared, old))
	}

	return nil
}
