package secure

import (
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/tensor"
)

// answer returns the forms of a client's answer in a step: one vector of known size instead of its upload, or at most
// as many bytes as its message can have.
func (r *round) answer(name string) tensor.Specs {
	n, t := r.aggregation.clients, r.sessions[0].terms // all sessions of a round have vectors of the same size
	if name == maskedName {
		return tensor.Specs{{Name: name, Int: true, Shape: []int{packed(t.Length * t.Ring.Width)}}}
	}

	most := map[string]int{keysName: secagg.MaxJoiningSize(n), sharesName: secagg.MaxEncryptedSharesSize(n),
		complaintsName: secagg.MaxComplaintsSize(n), agreedName: secagg.MaxSignatureSize,
		revealName: secagg.MaxSharesSize(n)}
	return tensor.Specs{{Name: name, Int: true, Shape: []int{-packed(most[name])}}}
}
