package secagg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Keys are what a client advertises.
type Keys struct {
	Envelope [keySize]byte // public key for what other clients send it
	Pair     [keySize]byte // public key for pairwise masks
	Seed     [keySize]byte // commitment to the seed of its own mask
}

// Roster are the keys of all clients of a session.
type Roster map[int]Keys

// Envelopes are sealed shares: by receiver as a client sends them, by sender as it gets them.
type Envelopes map[int][]byte

// Question asks a client for shares of the own masks of Survivors, whose vectors arrived, and of the pairwise keys of
// Dropped.
type Question struct{ Survivors, Dropped []int }

// Shares answer a Question: for each client of it the one share that it asks for.
type Shares map[int][]byte

// Bounds of messages.
const (
	maxClients = 1 << 20
	maxID      = 1 << 30
)

var errShort = errors.New("the message ends too early, or too late")

// encodeFixed writes records of one size, sorted by client: a count, then each client's number and bytes.
func encodeFixed(m map[int][]byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(m)))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(id)), m[id]...)
	}
	return out
}

// decodeFixed reads what encodeFixed wrote: clients ascend, and nothing follows.
func decodeFixed(b []byte, size int) (map[int][]byte, error) {
	if len(b) < 4 {
		return nil, errShort
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > maxClients || len(b) != n*(4+size) {
		return nil, errShort
	}
	out, last := make(map[int][]byte, n), -1
	for ; len(b) > 0; b = b[4+size:] {
		id := int(binary.LittleEndian.Uint32(b))
		if id <= last || id >= maxID {
			return nil, fmt.Errorf("client %d follows client %d; numbers must ascend below %d", id, last, maxID)
		}
		out[id], last = slices.Clone(b[4:4+size]), id
	}
	return out, nil
}

// Encode writes keys.
func (k Keys) Encode() []byte { return slices.Concat(k.Envelope[:], k.Pair[:], k.Seed[:]) }

// DecodeKeys reads what Encode wrote.
func DecodeKeys(b []byte) (k Keys, err error) {
	if len(b) != 3*keySize {
		return k, fmt.Errorf("keys: %d bytes; they must have %d", len(b), 3*keySize)
	}
	copy(k.Envelope[:], b)
	copy(k.Pair[:], b[keySize:])
	copy(k.Seed[:], b[2*keySize:])
	return k, nil
}

// Encode writes a roster.
func (r Roster) Encode() []byte {
	m := map[int][]byte{}
	for id, k := range r {
		m[id] = k.Encode()
	}
	return encodeFixed(m)
}

// DecodeRoster reads what Encode wrote.
func DecodeRoster(b []byte) (Roster, error) {
	m, err := decodeFixed(b, 3*keySize)
	if err != nil {
		return nil, fmt.Errorf("roster: %w", err)
	}
	r := Roster{}
	for id, b := range m {
		if r[id], err = DecodeKeys(b); err != nil {
			return nil, fmt.Errorf("roster: client %d: %w", id, err)
		}
	}
	return r, nil
}

// Encode writes envelopes.
func (e Envelopes) Encode() []byte { return encodeFixed(e) }

// DecodeEnvelopes reads what Encode wrote.
func DecodeEnvelopes(b []byte) (Envelopes, error) {
	m, err := decodeFixed(b, envelopeSize)
	if err != nil {
		return nil, fmt.Errorf("envelopes: %w", err)
	}
	return m, nil
}

// Encode writes shares.
func (s Shares) Encode() []byte { return encodeFixed(s) }

// DecodeShares reads what Encode wrote.
func DecodeShares(b []byte) (Shares, error) {
	m, err := decodeFixed(b, secretSize)
	if err != nil {
		return nil, fmt.Errorf("shares: %w", err)
	}
	return m, nil
}

// Encode writes a question; both lists must ascend.
func (q Question) Encode() []byte {
	var out []byte
	for _, list := range [][]int{q.Survivors, q.Dropped} {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(list)))
		for _, id := range list {
			out = binary.LittleEndian.AppendUint32(out, uint32(id))
		}
	}
	return out
}

// DecodeQuestion reads what Encode wrote.
func DecodeQuestion(b []byte) (q Question, err error) {
	for _, list := range []*[]int{&q.Survivors, &q.Dropped} {
		if len(b) < 4 {
			return q, fmt.Errorf("question: %w", errShort)
		}
		n := int(binary.LittleEndian.Uint32(b))
		if b = b[4:]; n > maxClients || len(b) < 4*n {
			return q, fmt.Errorf("question: %w", errShort)
		}
		last := -1
		for ; n > 0; n, b = n-1, b[4:] {
			id := int(binary.LittleEndian.Uint32(b))
			if id <= last || id >= maxID {
				return q, fmt.Errorf("question: client %d follows client %d; numbers must ascend below %d", id, last,
					maxID)
			}
			*list, last = append(*list, id), id
		}
	}
	if len(b) > 0 {
		return q, fmt.Errorf("question: %w", errShort)
	}
	return q, nil
}
