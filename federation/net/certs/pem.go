package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"promptfed/runtime/atomicfile"
)

// Kinds of PEM blocks.
const (
	CertificateBlock = "CERTIFICATE"
	RequestBlock     = "CERTIFICATE REQUEST"
	RevocationBlock  = "X509 CRL"
	keyBlock         = "PRIVATE KEY"
)

// EncodePEM returns a PEM text.
func EncodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// DecodePEM decodes the first block of a PEM text, which must be of a kind.
func DecodePEM[T any](text []byte, kind string, parse func([]byte) (T, error)) (out T, err error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return out, fmt.Errorf("it does not begin as PEM, with BEGIN %s", kind)
	}
	return parse(block.Bytes)
}

// DecodeCertificates decodes all blocks of a PEM text, which must be certificates.
func DecodeCertificates(text []byte) (list []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}

	return list, nil
}

// OpenKey returns the key (PEM, PKCS #8) of a file that only its owner may read. If there is none, it stores a new key.
func OpenKey(path string, generate func() (crypto.Signer, error)) (crypto.Signer, error) {
	text, err := atomicfile.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return NewKey(path, generate)
	}

	if err != nil {
		return nil, err
	}

	if key, err := DecodePEM(text, keyBlock, x509.ParsePKCS8PrivateKey); err == nil {
		if signer, ok := key.(crypto.Signer); ok && CheckKey(signer.Public()) == nil {
			return signer, nil
		}
	}

	return nil, fmt.Errorf("%s holds no ECDSA P-256, P-384 or Ed25519 key in PKCS #8; move it away to make a new key",
		path)
}

// NewKey stores a new key in a file.
func NewKey(path string, generate func() (crypto.Signer, error)) (crypto.Signer, error) {
	key, err := generate()
	if err != nil {
		return nil, err
	}

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	return key, atomicfile.WritePrivate(path, atomicfile.Bytes(EncodePEM(keyBlock, der)))
}

// CheckKey returns an error unless a public key is of a kind that certificates may have.
func CheckKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
	}

	return errors.New("the key is neither ECDSA P-256 or P-384 nor Ed25519")
}
