package secagg

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// Identity signs for the clients that are here, and knows the keys of those elsewhere. It is safe for concurrent use.
type Identity interface {
	// Proof is what a client shows of its public key, at most maxProof bytes: certificates, or the key itself.
	Proof(client int) ([]byte, error)
	Sign(client int, message []byte) ([]byte, error)
	// Verify finds why a proof is not that of a client, or a signature of a message not one by the proof's key.
	Verify(client int, proof, message, signature []byte) error
	// Certified tells that a proof says by itself whose it is. Otherwise the first one counts that was seen.
	Certified() bool
}

// Peers are the proofs of the other clients that a party has seen, by client.
type Peers map[int][]byte

// Fingerprint names a proof.
func Fingerprint(proof []byte) string {
	h := sha256.Sum256(proof)
	return hex.EncodeToString(h[:fingerprintSize])
}

// proof is that of a client's advertisement, which may leave out one that was seen before. One that was seen before
// and that nothing certifies stays.
func (p Peers) proof(who Identity, client int, shown []byte) ([]byte, error) {
	before := p[client]
	switch {
	case len(shown) == 0 && len(before) == 0:
		return nil, fmt.Errorf("client %d sent no key, and none is known of it", client)
	case len(shown) == 0:
		return before, nil
	case len(before) > 0 && !who.Certified() && !bytes.Equal(before, shown):
		return nil, fmt.Errorf("client %d sent the key %s; it had %s before, and no certificate confirms that both "+
			"are its own", client, Fingerprint(shown), Fingerprint(before))
	}
	return shown, nil
}

// Local is the identity of all clients of one process, with keys that last as long as it does.
type Local struct {
	mu   sync.Mutex
	keys map[int]ed25519.PrivateKey
}

func (l *Local) of(client int) (ed25519.PrivateKey, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.keys[client]; k != nil {
		return k, nil
	}
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if l.keys == nil {
		l.keys = map[int]ed25519.PrivateKey{}
	}
	l.keys[client] = k
	return k, err
}

// Proof is the public key.
func (l *Local) Proof(client int) ([]byte, error) {
	k, err := l.of(client)
	if err != nil {
		return nil, err
	}
	return k.Public().(ed25519.PublicKey), nil
}

// Sign signs with Ed25519.
func (l *Local) Sign(client int, message []byte) ([]byte, error) {
	k, err := l.of(client)
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(k, message), nil
}

// Verify takes the first key that it sees of a client.
func (l *Local) Verify(_ int, proof, message, signature []byte) error {
	if len(proof) != ed25519.PublicKeySize || !ed25519.Verify(proof, message, signature) {
		return errors.New("the signature is not its own")
	}
	return nil
}

// Certified is false: nothing but the first use says whose key is whose.
func (l *Local) Certified() bool { return false }
