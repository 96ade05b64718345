package secagg

import (
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/zk/dleq"
)

// Complaint says that an encrypted share is invalid. It is empty if the dealer's signature is wrong. Otherwise Shared
// is the Diffie-Hellman secret of receiver and dealer, which opens the encrypted share. Proof shows that Shared is that
// secret (Chaum and Pedersen, Wallet Databases with Observers, CRYPTO 1992). Anyone who has the encrypted share can
// therefore decide which of the two lies, whatever the number of liars. An honest receiver opens only shares that a
// dishonest dealer signed, so a complaint reveals no secret that is unknown to dishonest parties.
type Complaint struct{ Shared, Proof []byte }

const proofSize = 2 * secretSize

// dleqOf returns the parameters of the proofs of one session.
func dleqOf(t Params) dleq.Params {
	return dleq.Params{G: field, H: crypto.SHA256,
		DST: slices.Concat([]byte("promptfed secagg 3 complaint\n"), t.encode())}
}

// complain reveals the Diffie-Hellman secret of a client and a dealer, with its proof.
func complain(t Params, own secret, dealer []byte, random io.Reader) (Complaint, error) {
	b, err := decodePoint(dealer)
	if err != nil {
		return Complaint{}, err
	}

	public, shared := field.NewElement().MulGen(own.Scalar), field.NewElement().Mul(b, own.Scalar)
	p, err := dleq.Prover{Params: dleqOf(t)}.Prove(own.Scalar, field.Generator(), public, b, shared, random)
	if err != nil {
		return Complaint{}, err
	}

	text, err := p.MarshalBinary()
	return Complaint{encodePoint(shared), text}, err
}

// check verifies that Shared is the Diffie-Hellman secret of the public keys of receiver and dealer.
func (c Complaint) check(params Params, receiver, dealer []byte) error {
	var points [3]group.Element
	for i, b := range [][]byte{receiver, dealer, c.Shared} {
		var err error
		if points[i], err = decodePoint(b); err != nil {
			return err
		}
	}

	var p dleq.Proof
	if err := p.UnmarshalBinary(field, c.Proof); err != nil {
		return errors.New("its proof is malformed")
	}

	if !(dleq.Verifier{Params: dleqOf(params)}).Verify(field.Generator(), points[0], points[1], points[2], &p) {
		return errors.New("its proof is wrong")
	}

	return nil
}

// judge decides who lies about an encrypted share, its receiver, who complains, or its dealer, and why.
func (s *Server) judge(receiver, dealer int, complaint Complaint) (liar int, why error) {
	share := s.encrypted[dealer][receiver]
	if err := s.who.Verify(dealer, s.roster[dealer].Proof, dealt(s.params, dealer, receiver, share),
		share.Signature); err != nil {
		return dealer, fmt.Errorf("its shares for client %d: %w", receiver, err)
	}

	if len(complaint.Shared) == 0 {
		return receiver, fmt.Errorf("it complains about the signature of client %d, which is correct", dealer)
	}

	to, from := s.roster[receiver].Envelope, s.roster[dealer].Envelope
	if err := complaint.check(s.params, to[:], from[:]); err != nil {
		return receiver, fmt.Errorf("it complains about client %d without a proof: %w", dealer, err)
	}

	if _, _, err := share.open(complaint.Shared, s.params.Session, dealer, receiver); err != nil {
		return dealer, fmt.Errorf("its shares for client %d: %w", receiver, err)
	}

	return receiver, fmt.Errorf("it complains about the shares of client %d, which are correct", dealer)
}

// open decrypts the two shares of an encrypted share and verifies them against the dealer's commitments.
func (l EncryptedShare) open(shared []byte, s Session, from, to int) (pair, seed []byte, err error) {
	if pair, seed, err = openShares(shared, s, from, to, l.Sealed); err != nil {
		return nil, nil, err
	}
	if !l.fits(ofPair, pair) || !l.fits(ofSeed, seed) {
		return nil, nil, errors.New("they do not fit its commitments")
	}
	return pair, seed, nil
}

// The two secrets that an encrypted share has shares of.
const (
	ofPair = iota
	ofSeed
)

// fits reports whether a share fits the dealer's commitment.
func (l EncryptedShare) fits(which int, share []byte) bool {
	x, err := scalar(share)
	return err == nil && string(secret{x}.point()) == string(l.Commitments[which*keySize:(which+1)*keySize])
}
