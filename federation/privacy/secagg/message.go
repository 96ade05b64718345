package secagg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Keys are the public keys that a client advertises.
type Keys struct {
	Envelope [keySize]byte // public key to encrypt shares for this client
	Pair     [keySize]byte // public key for pairwise masks
	Seed     [keySize]byte // commitment to the seed of its own mask
}

// Advert is a client's advertisement: its keys of the session, signed with its long-term key.
type Advert struct {
	Keys
	Signature []byte
	Proof     []byte // proof of the long-term key; empty in a roster if all clients know it
}

// Joining is an advertisement for the server, with fingerprints of the proofs that the client knows of others.
type Joining struct {
	Advert
	Known map[int][]byte // fingerprints by client
}

// Roster holds the advertisements of all clients of a session.
type Roster map[int]Advert

// EncryptedShare holds the two shares of one dealer for one receiver.
type EncryptedShare struct {
	Commitments [2 * keySize]byte // commitments to the shares of the pairwise key and of the own mask's seed
	Sealed      []byte            // both shares, for the receiver; empty for the dealer itself
	Signature   []byte            // the dealer's; empty for the dealer itself
}

// EncryptedShares holds those of one dealer by receiver, or those of one receiver by dealer.
type EncryptedShares map[int]EncryptedShare

// Complaints are complaints about encrypted shares, by dealer.
type Complaints map[int]Complaint

// UnmaskRequest asks a client for shares of the seeds of Survivors, whose vectors arrived, and of the pairwise keys of
// Dropped.
type UnmaskRequest struct{ Survivors, Dropped []int }

// Signatures are clients' signatures of one view of a session and one question, by client.
type Signatures map[int][]byte

// Shares answer an UnmaskRequest: one share for each of its clients.
type Shares map[int][]byte

// Bounds of messages.
const (
	maxClients = 1 << 20
	maxID      = 1 << 30

	maxSignature = 512
	maxProof     = 1 << 15

	fingerprintSize = 8 // bytes of a fingerprint, by which a server knows which proofs a client has
)

var errShort = errors.New("the message has the wrong length")

// encodeFixed writes records of one size, sorted by client: a count, then the number and bytes of each client.
func encodeFixed(m map[int][]byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(m)))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(id)), m[id]...)
	}
	return out
}

// decodeFixed reads the bytes of encodeFixed. Client numbers must ascend, and no bytes may follow.
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

// Encode returns the keys as bytes.
func (k Keys) Encode() []byte { return slices.Concat(k.Envelope[:], k.Pair[:], k.Seed[:]) }

// DecodeKeys reads the bytes of Encode.
func DecodeKeys(b []byte) (k Keys, err error) {
	if len(b) != 3*keySize {
		return k, fmt.Errorf("keys: %d bytes; they must have %d", len(b), 3*keySize)
	}
	copy(k.Envelope[:], b)
	copy(k.Pair[:], b[keySize:])
	copy(k.Seed[:], b[2*keySize:])
	return k, nil
}

// encodeList writes records of any size, sorted by client: a count, then the number, size and bytes of each client.
func encodeList(m map[int][]byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(m)))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(m[id])))
		out = append(out, m[id]...)
	}
	return out
}

// decodeList reads the bytes of encodeList, with records of at most so many bytes.
func decodeList(b []byte, most int) (map[int][]byte, error) {
	if len(b) < 4 {
		return nil, errShort
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > maxClients || len(b) < 8*n {
		return nil, errShort
	}
	out, last := make(map[int][]byte, n), -1
	for ; n > 0; n-- {
		if len(b) < 8 {
			return nil, errShort
		}
		id, size := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		if b = b[8:]; size > most || size > len(b) {
			return nil, errShort
		}
		if id <= last || id >= maxID {
			return nil, fmt.Errorf("client %d follows client %d; numbers must ascend below %d", id, last, maxID)
		}
		out[id], last, b = slices.Clone(b[:size]), id, b[size:]
	}
	if len(b) > 0 {
		return nil, errShort
	}
	return out, nil
}

// Encode returns the advertisement as bytes: keys, size of the signature, signature, proof.
func (a Advert) Encode() []byte {
	b := binary.LittleEndian.AppendUint16(a.Keys.Encode(), uint16(len(a.Signature)))
	return slices.Concat(b, a.Signature, a.Proof)
}

// DecodeAdvert reads the bytes of Encode.
func DecodeAdvert(b []byte) (a Advert, err error) {
	const head = 3*keySize + 2
	if len(b) < head {
		return a, fmt.Errorf("advertisement: %w", errShort)
	}
	n := int(binary.LittleEndian.Uint16(b[3*keySize:]))
	if n > maxSignature || len(b) < head+n || len(b) > head+n+maxProof {
		return a, fmt.Errorf("advertisement: %w", errShort)
	}
	if a.Keys, err = DecodeKeys(b[:3*keySize]); err != nil {
		return a, err
	}
	a.Signature, a.Proof = slices.Clone(b[head:head+n]), slices.Clone(b[head+n:])
	return a, nil
}

// Encode returns the message as bytes: the size of the advertisement, the advertisement, and the known fingerprints.
func (j Joining) Encode() []byte {
	a := j.Advert.Encode()
	return slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(len(a))), a, encodeFixed(j.Known))
}

// DecodeJoining reads the bytes of Encode.
func DecodeJoining(b []byte) (j Joining, err error) {
	if len(b) < 4 {
		return j, fmt.Errorf("advertisement: %w", errShort)
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > len(b) {
		return j, fmt.Errorf("advertisement: %w", errShort)
	}
	if j.Advert, err = DecodeAdvert(b[:n]); err != nil {
		return j, err
	}
	if j.Known, err = decodeFixed(b[n:], fingerprintSize); err != nil {
		return j, fmt.Errorf("advertisement: %w", err)
	}
	return j, nil
}

// Encode writes a roster.
func (r Roster) Encode() []byte {
	m := map[int][]byte{}
	for id, a := range r {
		m[id] = a.Encode()
	}
	return encodeList(m)
}

// DecodeRoster reads the bytes of Encode.
func DecodeRoster(b []byte) (Roster, error) {
	m, err := decodeList(b, 3*keySize+2+maxSignature+maxProof)
	if err != nil {
		return nil, fmt.Errorf("roster: %w", err)
	}
	r := Roster{}
	for id, b := range m {
		if r[id], err = DecodeAdvert(b); err != nil {
			return nil, fmt.Errorf("roster: client %d: %w", id, err)
		}
	}
	return r, nil
}

// Encode writes signatures.
func (s Signatures) Encode() []byte { return encodeList(s) }

// DecodeSignatures reads the bytes of Encode.
func DecodeSignatures(b []byte) (Signatures, error) {
	m, err := decodeList(b, maxSignature)
	if err != nil {
		return nil, fmt.Errorf("signatures: %w", err)
	}
	return m, nil
}

// Encode returns encrypted shares as bytes, each as its commitments, the sealed shares and the signature.
func (l EncryptedShares) Encode() []byte {
	m := map[int][]byte{}
	for id, x := range l {
		m[id] = slices.Concat(x.Commitments[:], x.Sealed, x.Signature)
	}
	return encodeList(m)
}

// DecodeEncryptedShares reads the bytes of Encode.
func DecodeEncryptedShares(b []byte) (EncryptedShares, error) {
	const head = 2 * keySize
	m, err := decodeList(b, head+sealedSize+maxSignature)
	if err != nil {
		return nil, fmt.Errorf("encrypted shares: %w", err)
	}
	out := EncryptedShares{}
	for id, b := range m {
		if len(b) != head && len(b) < head+sealedSize {
			return nil, fmt.Errorf("encrypted shares: client %d: %w", id, errShort)
		}
		x := EncryptedShare{Commitments: [head]byte(b)}
		if len(b) > head {
			x.Sealed, x.Signature = b[head:head+sealedSize], b[head+sealedSize:]
		}
		out[id] = x
	}
	return out, nil
}

// Encode writes complaints.
func (c Complaints) Encode() []byte {
	m := map[int][]byte{}
	for id, x := range c {
		m[id] = slices.Concat(x.Shared, x.Proof)
	}
	return encodeList(m)
}

// DecodeComplaints reads the bytes of Encode.
func DecodeComplaints(b []byte) (Complaints, error) {
	m, err := decodeList(b, keySize+proofSize)
	if err != nil {
		return nil, fmt.Errorf("complaints: %w", err)
	}
	out := Complaints{}
	for id, b := range m {
		switch len(b) {
		case 0:
			out[id] = Complaint{}
		case keySize + proofSize:
			out[id] = Complaint{b[:keySize], b[keySize:]}
		default:
			return nil, fmt.Errorf("complaints: client %d: %w", id, errShort)
		}
	}
	return out, nil
}

// EncodeClients writes a list of clients, which must ascend.
func EncodeClients(list []int) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, id := range list {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
	}
	return out
}

// DecodeClients reads the bytes of EncodeClients.
func DecodeClients(b []byte) ([]int, error) {
	list, rest, err := decodeClients(b)
	if err == nil && len(rest) > 0 {
		err = errShort
	}
	return list, err
}

// decodeClients reads a list of clients and returns the bytes after it.
func decodeClients(b []byte) (list []int, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShort
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > maxClients || len(b) < 4*n {
		return nil, nil, errShort
	}
	last := -1
	for ; n > 0; n, b = n-1, b[4:] {
		id := int(binary.LittleEndian.Uint32(b))
		if id <= last || id >= maxID {
			return nil, nil, fmt.Errorf("client %d follows client %d; numbers must ascend below %d", id, last, maxID)
		}
		list, last = append(list, id), id
	}
	return list, b, nil
}

// Encode writes shares.
func (s Shares) Encode() []byte { return encodeFixed(s) }

// DecodeShares reads the bytes of Encode.
func DecodeShares(b []byte) (Shares, error) {
	m, err := decodeFixed(b, secretSize)
	if err != nil {
		return nil, fmt.Errorf("shares: %w", err)
	}
	return m, nil
}

// Encode returns a question as bytes; both lists must ascend.
func (q UnmaskRequest) Encode() []byte {
	return append(EncodeClients(q.Survivors), EncodeClients(q.Dropped)...)
}

// DecodeUnmaskRequest reads the bytes of Encode.
func DecodeUnmaskRequest(b []byte) (q UnmaskRequest, err error) {
	if q.Survivors, b, err = decodeClients(b); err == nil {
		q.Dropped, err = DecodeClients(b)
	}
	if err != nil {
		return UnmaskRequest{}, fmt.Errorf("question: %w", err)
	}
	return q, nil
}
