package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Identity is the signing key of one side of a run and its way to recognise the other side.
//
// With certificates each side proves its name by a certificate that the authority signed. Without, each side makes a
// key at the first use and keeps it in its folder; the other side remembers the key that it saw first.
type Identity struct {
	Key     crypto.Signer
	chain   [][]byte // certificates, DER; none without certificates
	roots   *x509.CertPool
	Revoked *RevocationList
}

// Certified reports whether the keys come with certificates.
func (i Identity) Certified() bool { return i.roots != nil }

// FromTLS returns the identity of the certificates of a TLS configuration; without it, keys are made at the first use.
func FromTLS(conf *tls.Config) (Identity, error) {
	if conf == nil {
		return Identity{}, nil
	}

	if len(conf.Certificates) == 0 || conf.RootCAs == nil {
		return Identity{}, errors.New("the TLS configuration has no certificate or no authority")
	}

	key, ok := conf.Certificates[0].PrivateKey.(crypto.Signer)
	if !ok {
		return Identity{}, errors.New("the certificate's key cannot sign")
	}

	return Identity{Key: key, chain: conf.Certificates[0].Certificate, roots: conf.RootCAs}, nil
}

// WithKey returns the identity with a key: its own, or that of a folder, which is made if there is none. Without a
// folder the key is new and not stored.
func (i Identity) WithKey(dir string) (_ Identity, err error) {
	generate := func() (crypto.Signer, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}

	switch {
	case i.Key != nil:
	case dir == "":
		i.Key, err = generate()
	default:
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return i, err
		}
		i.Key, err = OpenKey(filepath.Join(dir, "key.pem"), generate)
	}

	return i, err
}

// Proof is the proof of one side's key.
type Proof struct {
	Key   []byte   `json:"key"`             // public, PKIX
	Chain [][]byte `json:"chain,omitempty"` // of the certificate, DER
}

// Proof returns the public key with its certificates, for the other side's VerifierOf.
func (i Identity) Proof() (Proof, error) {
	der, err := x509.MarshalPKIXPublicKey(i.Key.Public())
	return Proof{der, i.chain}, err
}

// VerifierOf returns the key of the other side, whose certificate must have a name.
func (i Identity) VerifierOf(p Proof, name string) (Verifier, error) {
	if !i.Certified() {
		return keyOf(p.Key)
	}

	v, key, err := i.verifierOf(slices.Concat(p.Chain...), name, 0)
	if err == nil && !bytes.Equal(key, p.Key) {
		err = fmt.Errorf("the key does not belong to the certificate of %s", name)
	}

	return v, err
}

// verifierOf returns the key of a certificate with a name, which the chain begins with, and its encoding (PKIX). The
// certificate may have ended so long ago as grace.
func (i Identity) verifierOf(chain []byte, name string, grace time.Duration) (verifier Verifier, key []byte,
	err error) {
	list, err := x509.ParseCertificates(chain)
	switch {
	case err != nil || len(list) == 0 || len(list) > 8:
		return verifier, nil, fmt.Errorf("%s sent no certificate", name)
	case list[0].Subject.CommonName != name:
		return verifier, nil, fmt.Errorf("the certificate belongs to %.60q, not to %s", list[0].Subject.CommonName,
			name)
	}

	between := x509.NewCertPool()
	for _, c := range list[1:] {
		between.AddCert(c)
	}

	at := time.Now()
	if end := list[0].NotAfter; at.After(end) && at.Sub(end) < grace {
		at = end
	}

	paths, err := list[0].Verify(x509.VerifyOptions{Roots: i.roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return verifier, nil, fmt.Errorf("the certificate of %s: %w", name, err)
	}

	if key, err = x509.MarshalPKIXPublicKey(list[0].PublicKey); err == nil {
		verifier, err = keyOf(key)
	}

	if err == nil {
		// other certificates in the proof are of anybody, who chooses when they end
		verifier.chain, verifier.revoked, verifier.grace = paths[0], i.Revoked, grace
		err = verifier.Valid()
	}

	return verifier, key, err
}

// Verifier verifies signatures by one key; without a key none is valid.
type Verifier struct {
	Key     crypto.PublicKey
	chain   []*x509.Certificate // certificates of the key; none without
	revoked *RevocationList
	grace   time.Duration // how long the certificates count after their end
}

// Valid returns why the certificate of the key is not valid any more.
func (v Verifier) Valid() error { return v.revoked.Check(v.chain, v.grace) }

// ErrForged is the error of Signatures.Verify for a signature that is not of the client's key.
var ErrForged = errors.New("the signature does not belong to the expected sender, or the message is damaged")

// Sign signs a digest.
func (i Identity) Sign(digest []byte) ([]byte, error) {
	if _, ok := i.Key.(ed25519.PrivateKey); ok {
		return i.Key.Sign(nil, digest, crypto.Hash(0))
	}
	return i.Key.Sign(rand.Reader, digest, crypto.SHA256)
}

// Verify reports whether a signature of a digest is of the key, by Ed25519 or ECDSA. Other keys verify nothing.
func (v Verifier) Verify(digest, signature []byte) bool {
	switch key := v.Key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, digest, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, digest, signature)
	}
	return false
}

// keyOf decodes a public key.
func keyOf(der []byte) (Verifier, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return Verifier{}, fmt.Errorf("the key: %w", err)
	}

	switch key.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return Verifier{Key: key}, nil
	}

	return Verifier{}, errors.New("the key is neither Ed25519 nor ECDSA")
}

// ServerName is the common name in the server's certificate.
const ServerName = "server"

// UserOf returns the user name of a client, which is also the common name of its certificate.
func UserOf(client int) string { return "client-" + strconv.Itoa(client) }

// MaxClients is the largest number of clients of a run.
const MaxClients = 1 << 20

// ClientOf returns the client of a user name.
func ClientOf(user string) (client int, ok bool) {
	client, err := strconv.Atoi(strings.TrimPrefix(user, "client-"))
	return client, err == nil && client >= 0 && client < MaxClients && UserOf(client) == user
}

// StatusUser is the common name of a certificate that may only request the status of a run.
const StatusUser = "status"

// WorkerUser is the user name of workers, which is also the common name of their certificate.
const WorkerUser = "worker"
