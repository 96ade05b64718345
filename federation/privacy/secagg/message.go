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

	// bytes of a fingerprint, by which a server knows which proofs a client has: no client finds two of its own proofs
	// with one fingerprint
	fingerprintSize = 16
)

var errShort = errors.New("the message has the wrong length")

// layout describes records in a message, sorted by client: their count, then the number and the bytes of each client.
type layout struct {
	what   string // the message, for errors
	size   int    // of a record, in bytes
	varies bool   // records are smaller, too; the size of each stands before its bytes
}

// The layouts of messages.
var (
	knownLayout      = layout{"advertisement", fingerprintSize, false}
	rosterLayout     = layout{"roster", 3*keySize + 2 + maxSignature + maxProof, true}
	encryptedLayout  = layout{"encrypted shares", 2*keySize + sealedSize + maxSignature, true}
	complaintsLayout = layout{"complaints", keySize + proofSize, true}
	signaturesLayout = layout{"signatures", maxSignature, true}
	sharesLayout     = layout{"shares", secretSize, false}
	clientsLayout    = layout{"clients", 0, false}
)

// header returns the number of bytes before a record's own.
func (l layout) header() int {
	if l.varies {
		return 8
	}
	return 4
}

// most returns the size of a message with the largest records of so many clients, in bytes.
func (l layout) most(clients int) int { return 4 + clients*(l.header()+l.size) }

// encode writes records.
func encode[T any](l layout, m map[int]T, record func(T) []byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(m)))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		b := record(m[id])
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
		if l.varies {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
		}
		out = append(out, b...)
	}

	return out
}

// decode reads the bytes of encode, and nothing after them.
func decode[T any](l layout, b []byte, record func([]byte) (T, error)) (map[int]T, error) {
	out, rest, err := decodePart(l, b, record)
	if err == nil && len(rest) > 0 {
		err = errShort
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.what, err)
	}

	return out, nil
}

// decodePart reads the bytes of encode, and returns those after them. Client numbers must ascend.
func decodePart[T any](layout layout, data []byte, record func([]byte) (T, error)) (map[int]T, []byte, error) {
	if len(data) < 4 {
		return nil, nil, errShort
	}

	n := int(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n > maxClients || len(data) < n*layout.header() {
		return nil, nil, errShort
	}

	out, last := map[int]T{}, -1
	for ; n > 0; n-- {
		if len(data) < layout.header() {
			return nil, nil, errShort
		}

		id, size := int(binary.LittleEndian.Uint32(data)), layout.size
		if layout.varies {
			size = int(binary.LittleEndian.Uint32(data[4:]))
		}

		if data = data[layout.header():]; size > layout.size || size > len(data) {
			return nil, nil, errShort
		}

		if id <= last || id >= maxID {
			return nil, nil, fmt.Errorf("client %d follows client %d; numbers must ascend below %d", id, last, maxID)
		}

		var err error
		if out[id], err = record(slices.Clone(data[:size])); err != nil {
			return nil, nil, fmt.Errorf("client %d: %w", id, err)
		}

		last, data = id, data[size:]
	}

	return out, data, nil
}

// encodeBytes and decodeBytes are for records that are bytes.
func encodeBytes(b []byte) []byte { return b }

func decodeBytes(b []byte) ([]byte, error) { return b, nil }

// Encode returns the keys as bytes.
func (k Keys) Encode() []byte { return slices.Concat(k.Envelope[:], k.Pair[:], k.Seed[:]) }

// Encode returns the advertisement as bytes: keys, size of the signature, signature, proof.
func (a Advert) Encode() []byte {
	b := binary.LittleEndian.AppendUint16(a.Keys.Encode(), uint16(len(a.Signature)))
	return slices.Concat(b, a.Signature, a.Proof)
}

// DecodeAdvert reads the bytes of Encode.
func DecodeAdvert(data []byte) (advert Advert, err error) {
	const head = 3*keySize + 2
	if len(data) < head {
		return advert, fmt.Errorf("advertisement: %w", errShort)
	}

	n := int(binary.LittleEndian.Uint16(data[3*keySize:]))
	if n > maxSignature || len(data) < head+n || len(data) > head+n+maxProof {
		return advert, fmt.Errorf("advertisement: %w", errShort)
	}

	_, err = binary.Decode(data, binary.LittleEndian, &advert.Keys)
	advert.Signature, advert.Proof = slices.Clone(data[head:head+n]), slices.Clone(data[head+n:])
	return advert, err
}

// Encode returns the message as bytes: the size of the advertisement, the advertisement, and the known fingerprints.
func (j Joining) Encode() []byte {
	a := j.Advert.Encode()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(a)))
	return slices.Concat(b, a, encode(knownLayout, j.Known, encodeBytes))
}

// DecodeJoining reads the bytes of Encode.
func DecodeJoining(data []byte) (joining Joining, err error) {
	if len(data) < 4 {
		return joining, fmt.Errorf("advertisement: %w", errShort)
	}

	n := int(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n > len(data) {
		return joining, fmt.Errorf("advertisement: %w", errShort)
	}

	if joining.Advert, err = DecodeAdvert(data[:n]); err == nil {
		joining.Known, err = decode(knownLayout, data[n:], decodeBytes)
	}

	return joining, err
}

// Encode returns one record for each client: its advertisement.
func (r Roster) Encode() []byte { return encode(rosterLayout, r, Advert.Encode) }

// DecodeRoster reads the bytes of Roster.Encode. It does not verify signatures.
func DecodeRoster(b []byte) (Roster, error) { return decode(rosterLayout, b, DecodeAdvert) }

// Encode returns one record for each client: its signature.
func (s Signatures) Encode() []byte { return encode(signaturesLayout, s, encodeBytes) }

// DecodeSignatures reads the bytes of Signatures.Encode. It does not verify them.
func DecodeSignatures(b []byte) (Signatures, error) { return decode(signaturesLayout, b, decodeBytes) }

// Encode returns one record for each client that was asked about: its share.
func (s Shares) Encode() []byte { return encode(sharesLayout, s, encodeBytes) }

// DecodeShares reads the bytes of Shares.Encode. A share of another size is an error.
func DecodeShares(b []byte) (Shares, error) { return decode(sharesLayout, b, decodeBytes) }

// Encode returns one record for each client: the commitments, and, of another client than the dealer, the sealed shares
// and the signature.
func (l EncryptedShares) Encode() []byte {
	return encode(encryptedLayout, l, func(x EncryptedShare) []byte {
		return slices.Concat(x.Commitments[:], x.Sealed, x.Signature)
	})
}

// DecodeEncryptedShares reads the bytes of EncryptedShares.Encode. It opens no share and verifies no signature.
func DecodeEncryptedShares(b []byte) (EncryptedShares, error) {
	const head = 2 * keySize
	return decode(encryptedLayout, b, func(b []byte) (x EncryptedShare, err error) {
		if len(b) != head && len(b) < head+sealedSize {
			return x, errShort
		}
		copy(x.Commitments[:], b)
		if len(b) > head {
			x.Sealed, x.Signature = b[head:head+sealedSize], b[head+sealedSize:]
		}
		return x, nil
	})
}

// Encode returns one record for each dealer: the shared key and its proof, or nothing.
func (c Complaints) Encode() []byte {
	return encode(complaintsLayout, c, func(x Complaint) []byte { return slices.Concat(x.Shared, x.Proof) })
}

// DecodeComplaints reads the bytes of Complaints.Encode. It does not verify proofs.
func DecodeComplaints(b []byte) (Complaints, error) {
	return decode(complaintsLayout, b, func(b []byte) (Complaint, error) {
		switch len(b) {
		case 0:
			return Complaint{}, nil
		case keySize + proofSize:
			return Complaint{b[:keySize], b[keySize:]}, nil
		}
		return Complaint{}, errShort
	})
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
	m, err := decode(clientsLayout, b, decodeBytes)
	return slices.Sorted(maps.Keys(m)), err
}

// Encode returns a question as bytes; both lists must ascend.
func (q UnmaskRequest) Encode() []byte {
	return append(EncodeClients(q.Survivors), EncodeClients(q.Dropped)...)
}

// DecodeUnmaskRequest reads the bytes of Encode.
func DecodeUnmaskRequest(b []byte) (request UnmaskRequest, err error) {
	survivors, b, err := decodePart(clientsLayout, b, decodeBytes)
	if err == nil {
		request.Dropped, err = DecodeClients(b)
	}

	if err != nil {
		return UnmaskRequest{}, fmt.Errorf("question: %w", err)
	}

	request.Survivors = slices.Sorted(maps.Keys(survivors))
	return request, nil
}

// Sizes of the largest messages of a client, in bytes, with so many clients.

// MaxJoiningSize is the largest size of a Joining: with a fingerprint of each client's proof.
func MaxJoiningSize(clients int) int { return 4 + rosterLayout.size + knownLayout.most(clients) }

// MaxEncryptedSharesSize is the largest size of EncryptedShares, for all clients.
func MaxEncryptedSharesSize(clients int) int { return encryptedLayout.most(clients) }

// MaxComplaintsSize is the largest size of Complaints, about all clients.
func MaxComplaintsSize(clients int) int { return complaintsLayout.most(clients) }

// MaxSharesSize is the largest size of Shares, for a question about all clients.
func MaxSharesSize(clients int) int { return sharesLayout.most(clients) }

// MaxSignatureSize is that of a signature of a view.
const MaxSignatureSize = maxSignature
