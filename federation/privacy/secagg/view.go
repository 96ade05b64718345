package secagg

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Prefixes of signed messages, by purpose.
const (
	keysPurpose = "promptfed secagg 3 keys\n"
	viewPurpose = "promptfed secagg 3 view\n"
	dealPurpose = "promptfed secagg 3 share\n"
)

// encode returns the parameters as bytes, for signatures and digests.
func (t Params) encode() []byte {
	b := slices.Concat(t.Context[:], t.Session[:])
	for _, n := range []int{t.Round, t.Clients, t.Threshold, t.Length, t.Ring.Width} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// advertised returns the message that a client signs about its keys.
func advertised(t Params, id int, k Keys) []byte {
	b := binary.LittleEndian.AppendUint64(append([]byte(keysPurpose), t.encode()...), uint64(id))
	return append(b, k.Encode()...)
}

// dealt returns the message that a dealer signs about an encrypted share.
func dealt(t Params, from, to int, l EncryptedShare) []byte {
	b := binary.LittleEndian.AppendUint64(append([]byte(dealPurpose), t.encode()...), uint64(from))
	return slices.Concat(binary.LittleEndian.AppendUint64(b, uint64(to)), l.Commitments[:], l.Sealed)
}

// view is a digest of what a party received in a session before masking: the terms, the keys of all clients, the
// dealers whose shares are all valid, and the model.
type view [sha256.Size]byte

func viewOf(t Params, r Roster, senders []int, model [sha256.Size]byte) view {
	h := sha256.New()
	h.Write(append([]byte(viewPurpose), t.encode()...))
	d := r.digest()
	h.Write(d[:])
	fmt.Fprintln(h, "senders", senders)
	h.Write(model[:])
	return view(h.Sum(nil))
}

// digest returns a digest of the clients of a roster and their keys.
func (r Roster) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintln(h, "client", id)
		h.Write(r[id].Keys.Encode())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// agreed returns the message that a client signs before it reveals shares: its view, and the question that it will
// answer.
func agreed(v view, q UnmaskRequest) []byte {
	return slices.Concat([]byte(viewPurpose), v[:], q.Encode())
}
