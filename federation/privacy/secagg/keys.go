package secagg

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/cloudflare/circl/group"
)

// Sizes in bytes.
const (
	SessionSize = 16
	keySize     = 32
	secretSize  = 32
	sealedSize  = 2*secretSize + 16 // two shares and the authentication tag
)

// field is the group of the protocol. Its scalars are secrets and shares, its elements public keys and commitments.
var field = group.Ristretto255

// Session identifies one run of the protocol. The server draws it at random, and all keys are bound to it.
type Session [SessionSize]byte

// secret is a random number that can be shared, and from which keys are derived.
type secret struct{ group.Scalar }

func newSecret(random io.Reader) secret { return secret{field.RandomNonZeroScalar(random)} }

// derive returns 32 bytes for one purpose, session and pair of clients.
func derive(from []byte, s Session, purpose string, ids ...int) []byte {
	info := append([]byte("promptfed secagg 3 "+purpose+" "), s[:]...)
	for _, id := range ids {
		info = binary.BigEndian.AppendUint64(info, uint64(id))
	}

	key, err := hkdf.Key(sha256.New, from, nil, string(info), keySize)
	if err != nil {
		panic(err) // only for lengths that SHA-256 cannot give
	}

	return key
}

// bytes returns the secret's number, in 32 bytes.
func (x secret) bytes() []byte {
	b, err := x.MarshalBinary()
	if err != nil {
		panic(err) // a scalar always has bytes
	}
	return b
}

// point returns the secret times the generator: a public key, or a commitment that reveals nothing about a random
// secret.
func (x secret) point() []byte { return encodePoint(field.NewElement().MulGen(x.Scalar)) }

func encodePoint(e group.Element) []byte {
	b, err := e.MarshalBinaryCompress()
	if err != nil {
		panic(err) // an element always has bytes
	}
	return b
}

// decodePoint decodes an element of the group other than the neutral one.
func decodePoint(b []byte) (group.Element, error) {
	e := field.NewElement()
	if len(b) != keySize || e.UnmarshalBinary(b) != nil || e.IsIdentity() {
		return nil, errors.New("it is not a key: 32 bytes of an element of Ristretto255 that is not neutral")
	}
	return e, nil
}

// agree returns the Diffie-Hellman secret of one client's private key and another's public key.
func agree(own secret, other []byte) ([]byte, error) {
	e, err := decodePoint(other)
	if err != nil {
		return nil, err
	}
	return encodePoint(e.Mul(e, own.Scalar)), nil
}

// block returns AES-256 with a key.
func block(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for keys that do not have 32 bytes
	}
	return b
}

// envelope returns the cipher for a message from one client to another through the server. Each key encrypts one
// message.
func envelope(shared []byte, s Session, from, to int) cipher.AEAD {
	c, err := cipher.NewGCM(block(derive(shared, s, "envelope", from, to)))
	if err != nil {
		panic(err) // only for other ciphers than AES
	}
	return c
}

var noNonce = make([]byte, 12) // a key encrypts one message, so its nonce never repeats

// sealShares encrypts two shares.
func sealShares(shared []byte, s Session, from, to int, pair, own []byte) []byte {
	return envelope(shared, s, from, to).Seal(nil, noNonce, slices.Concat(pair, own), nil)
}

// openShares decrypts the result of sealShares.
func openShares(shared []byte, s Session, from, to int, sealed []byte) (pair, own []byte, err error) {
	b, err := envelope(shared, s, from, to).Open(nil, noNonce, sealed, nil)
	if err != nil || len(b) != 2*secretSize {
		return nil, nil, errors.New("it was not encrypted for this client in this session, or was damaged")
	}
	return b[:secretSize], b[secretSize:], nil
}

// ownMask returns the key of a client's own mask.
func ownMask(x secret, s Session, id int) []byte { return derive(x.bytes(), s, "own mask", id) }

// pairMask returns the key of the mask of two clients. It depends on their views of the session, so the masks do not
// cancel if the server sent them different data.
func pairMask(shared []byte, s Session, v view, a, b int) []byte {
	return derive(slices.Concat(shared, v[:]), s, "pair mask", min(a, b), max(a, b))
}
