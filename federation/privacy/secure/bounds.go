package secure

import (
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/tensor"
)

// answer is what a client sends in a step: in place of its upload one vector, of a known size, and otherwise at most as
// many bytes as its message can have.
func (r *round) answer(name string) tensor.Forms {
	n, t := r.l.clients, r.sessions[0].terms // all sessions of a round have vectors of the same size
	if name == maskedName {
		return tensor.Forms{{Name: name, Int: true, Shape: []int{packed(t.Length * t.Ring.Width)}}}
	}
	most := map[string]int{keysName: secagg.MostJoining(n), sharesName: secagg.MostEncryptedShares(n),
		complaintsName: secagg.MostComplaints(n), agreedName: secagg.MostSignature, revealName: secagg.MostShares(n)}
	return tensor.Forms{{Name: name, Int: true, Shape: []int{-packed(most[name])}}}
}
