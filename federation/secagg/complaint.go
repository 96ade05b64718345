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

// Complaint says that a letter is no good. It is empty where the dealer's signature is wrong. Otherwise it opens the
// letter: Shared is what receiver and dealer agree on, and Proof shows that it is that (Chaum and Pedersen, Wallet
// Databases with Observers, CRYPTO 1992). So whoever has the letter can tell who of the two lies, however many others
// lie with it. An honest receiver opens only what a dishonest dealer signed, so that a complaint shows no secret that
// dishonest parties do not have.
type Complaint struct{ Shared, Proof []byte }

// proofSize is the size of a proof: two scalars.
const proofSize = 2 * secretSize

// dleqOf is the setting of proofs of one session.
func dleqOf(t Params) dleq.Params {
	return dleq.Params{G: field, H: crypto.SHA256,
		DST: slices.Concat([]byte("promptfed secagg 3 complaint\n"), t.encode())}
}

// complain opens what a client and a dealer agree on.
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

// check finds that Shared is not what receiver and dealer, who have these public keys, agree on.
func (c Complaint) check(t Params, receiver, dealer []byte) error {
	var points [3]group.Element
	for i, b := range [][]byte{receiver, dealer, c.Shared} {
		var err error
		if points[i], err = decodePoint(b); err != nil {
			return err
		}
	}
	var p dleq.Proof
	if err := p.UnmarshalBinary(field, c.Proof); err != nil {
		return errors.New("its proof is none")
	}
	if !(dleq.Verifier{Params: dleqOf(t)}).Verify(field.Generator(), points[0], points[1], points[2], &p) {
		return errors.New("its proof is wrong")
	}
	return nil
}

// judge decides between the receiver of a letter, who complains, and its dealer, and tells why one of them lies.
func (s *Server) judge(receiver, dealer int, c Complaint) (liar int, why error) {
	l := s.letters[dealer][receiver]
	if err := s.who.Verify(dealer, s.roster[dealer].Proof, dealt(s.t, dealer, receiver, l), l.Signature); err != nil {
		return dealer, fmt.Errorf("its shares for client %d: %w", receiver, err)
	}
	if len(c.Shared) == 0 {
		return receiver, fmt.Errorf("it complains about the signature of client %d, which is right", dealer)
	}
	to, from := s.roster[receiver].Envelope, s.roster[dealer].Envelope
	if err := c.check(s.t, to[:], from[:]); err != nil {
		return receiver, fmt.Errorf("it complains about client %d without a proof: %w", dealer, err)
	}
	if _, _, err := l.open(c.Shared, s.t.Session, dealer, receiver); err != nil {
		return dealer, fmt.Errorf("its shares for client %d: %w", receiver, err)
	}
	return receiver, fmt.Errorf("it complains about the shares of client %d, which are right", dealer)
}

// open gives the two shares of a letter, which are those that the dealer is committed to.
func (l Letter) open(shared []byte, s Session, from, to int) (pair, seed []byte, err error) {
	if pair, seed, err = openShares(shared, s, from, to, l.Sealed); err != nil {
		return nil, nil, err
	}
	if !l.fits(ofPair, pair) || !l.fits(ofSeed, seed) {
		return nil, nil, errors.New("they are not those that it is committed to")
	}
	return pair, seed, nil
}

// Shares of a letter are of two secrets.
const (
	ofPair = iota
	ofSeed
)

// fits tells whether a share is the one that the dealer is committed to.
func (l Letter) fits(of int, share []byte) bool {
	x, err := scalar(share)
	return err == nil && string(secret{x}.point()) == string(l.Points[of*keySize:(of+1)*keySize])
}
