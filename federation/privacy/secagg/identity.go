package secagg

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
)

// Identity signs for the local clients and verifies the signatures of others. It is safe for concurrent use.
type Identity interface {
	// Proof returns the proof of a client's public key, at most maxProof bytes: certificates, or the key itself.
	Proof(client int) ([]byte, error)
	Sign(client int, message []byte) ([]byte, error)
	// Verify reports a proof that does not belong to a client, or a signature of a message by another key than the
	// proof's.
	Verify(client int, proof, message, signature []byte) error
	// Certified reports whether a proof itself states its owner. Otherwise the first proof seen of a client counts.
	Certified() bool
}

// Peers holds the proofs of other clients that a party has seen, by client.
type Peers map[int][]byte

// Fingerprint returns a short digest of a proof.
func Fingerprint(proof []byte) []byte {
	h := sha256.Sum256(proof)
	return h[:fingerprintSize]
}

// proof returns the proof of a client's advertisement, which may omit a known proof. A known proof that no certificate
// confirms cannot be replaced.
func (p Peers) proof(who Identity, client int, shown []byte) ([]byte, error) {
	before := p[client]
	switch {
	case len(shown) == 0 && len(before) == 0:
		return nil, fmt.Errorf("client %d sent no key, and none is known of it", client)
	case len(shown) == 0:
		return before, nil
	case len(before) > 0 && !who.Certified() && !bytes.Equal(before, shown):
		return nil, fmt.Errorf("client %d sent the key %x; it had %x before, and no certificate confirms that both "+
			"are its own", client, Fingerprint(shown), Fingerprint(before))
	}

	return shown, nil
}

// LocalIdentity is the identity of all clients of one process. Its keys last as long as the process.
type LocalIdentity struct{ keys sync.Map } // ed25519.PrivateKey by client

func (l *LocalIdentity) key(client int) ed25519.PrivateKey {
	k, ok := l.keys.Load(client)
	if !ok {
		_, fresh, _ := ed25519.GenerateKey(rand.Reader) // that reader never fails
		k, _ = l.keys.LoadOrStore(client, fresh)
	}
	return k.(ed25519.PrivateKey)
}

// Proof returns the public key.
func (l *LocalIdentity) Proof(client int) ([]byte, error) {
	return l.key(client).Public().(ed25519.PublicKey), nil
}

// Sign signs with Ed25519.
func (l *LocalIdentity) Sign(client int, message []byte) ([]byte, error) {
	return ed25519.Sign(l.key(client), message), nil
}

// Verify checks an Ed25519 signature.
func (l *LocalIdentity) Verify(_ int, proof, message, signature []byte) error {
	if len(proof) != ed25519.PublicKeySize || !ed25519.Verify(proof, message, signature) {
		return errors.New("the signature is not by its key")
	}
	return nil
}

// Certified returns false: a key belongs to the client that used it first.
func (l *LocalIdentity) Certified() bool { return false }
