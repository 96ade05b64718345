package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Signatures sign and verify messages between clients that pass through the server, as in secure aggregation.
type Signatures struct {
	who   Identity
	grace time.Duration // how long after the end of a certificate its messages count
	mu    sync.Mutex
	known map[string]Verifier // by client and proof
}

// maxGrace is the grace of clients. The server has none: it verifies first, and a message that it accepts just before
// the end of a certificate must count for the other clients, or all would refuse the round.
const maxGrace = time.Hour

// Signatures returns a client's signatures with the identity's key. Without a certificate the key is made in a folder;
// without a folder they are the server's, which only verify.
func (i Identity) Signatures(dir string) (_ *Signatures, err error) {
	grace := time.Duration(0)
	if dir != "" {
		grace = maxGrace
		i, err = i.WithKey(dir)
	}

	return &Signatures{who: i, grace: grace, known: map[string]Verifier{}}, err
}

// Proof returns the certificate with its chain, or the public key without one.
func (s *Signatures) Proof(int) ([]byte, error) {
	if s.who.Certified() {
		return slices.Concat(s.who.chain...), nil
	}
	return x509.MarshalPKIXPublicKey(s.who.Key.Public())
}

// signedDigest returns the digest to sign. It separates these messages from others that the key signs.
func signedDigest(message []byte) []byte {
	sum := sha256.Sum256(append([]byte("promptfed between clients\n"), message...))
	return sum[:]
}

// Sign signs a message.
func (s *Signatures) Sign(_ int, message []byte) ([]byte, error) {
	return s.who.Sign(signedDigest(message))
}

// Verify reports a proof that does not belong to a client, or an invalid signature.
func (s *Signatures) Verify(client int, proof, message, signature []byte) error {
	at := fmt.Sprintf("%d %x", client, sha256.Sum256(proof))
	s.mu.Lock()
	key, ok := s.known[at]

	s.mu.Unlock()
	if !ok {
		var err error
		if key, err = s.keyOf(client, proof); err != nil {
			return err
		}
		s.mu.Lock()
		if len(s.known) > 1<<22 {
			clear(s.known)
		}
		s.known[at] = key
		s.mu.Unlock()
	}

	if err := key.Valid(); err != nil {
		return fmt.Errorf("the certificate of %s: %w", UserOf(client), err)
	}

	if !key.Verify(signedDigest(message), signature) {
		return ErrForged
	}

	return nil
}

func (s *Signatures) keyOf(client int, shown []byte) (v Verifier, err error) {
	if !s.who.Certified() {
		return keyOf(shown)
	}
	v, _, err = s.who.verifierOf(shown, UserOf(client), s.grace)
	return v, err
}

// Certified reports whether keys come with certificates.
func (s *Signatures) Certified() bool { return s.who.Certified() }
