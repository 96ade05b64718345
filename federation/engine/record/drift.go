package record

import (
	"math"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/runtime/tensor"
)

// ClientDrift describes the update of a client in a round: its uploaded shared parameters minus those of the
// instruction, all tensors joined into one vector.
type ClientDrift struct {
	Client int     `json:"client"`
	Norm   float64 `json:"norm"` // Euclidean
	// Cosine is that of the angle to the mean of all updates, in which every client counts alike; null where one of the
	// two is zero.
	Cosine *float64 `json:"cosine"`
}

// DriftOf compares uploads, which have the forms of the shared parameters that were sent, in the order of the replies.
// It is nil where nothing is shared, and where a reply is of several clients.
func DriftOf(sent tensor.Map, replies []message.Reply) (out []ClientDrift) {
	sums := slices.ContainsFunc(replies, func(r message.Reply) bool { return r.Sum != nil })
	if sent.Count() == 0 || sums {
		return nil
	}

	names := sent.Names()
	each := func(r message.Reply, visit func(i int, difference float64)) {
		i := 0
		for _, name := range names {
			after := r.Upload.Shared[name].Data
			for j, before := range sent[name].Data {
				visit(i, float64(after[j])-float64(before))
				i++
			}
		}
	}

	mean, length := make([]float64, sent.Count()), 0.0
	for _, r := range replies {
		each(r, func(i int, d float64) { mean[i] += d / float64(len(replies)) })
	}

	for _, m := range mean {
		length += m * m
	}

	length = math.Sqrt(length)

	for _, r := range replies {
		square, product := 0.0, 0.0
		each(r, func(i int, d float64) { square, product = square+d*d, product+d*mean[i] })
		one := ClientDrift{Client: r.Client, Norm: math.Sqrt(square)}
		if cosine := max(-1, min(product/one.Norm/length, 1)); one.Norm > 0 && length > 0 {
			one.Cosine = &cosine
		}
		out = append(out, one)
	}

	return out
}
