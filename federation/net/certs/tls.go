package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"promptfed/runtime/convert"
)

// Peer is the other side of a TLS connection.
type Peer struct {
	Name     string   // common name of its certificate; without an authority it proves nothing
	Proof    Proof    // its public key and certificates
	Verifier Verifier // Valid reports a certificate that has expired or was revoked since
}

// ErrOtherKey means that the server of a run has another key than the client remembers.
var ErrOtherKey = errors.New("the server of this run has another key than before")

// PeerOf returns the other side of a connection. With an authority it verifies the certificate like VerifierOf.
// Without, the certificate must be signed by its own key.
func (i Identity) PeerOf(state tls.ConnectionState) (Peer, error) {
	if len(state.PeerCertificates) == 0 {
		return Peer{}, errors.New("the other side sent no certificate")
	}

	own := state.PeerCertificates[0]
	peer := Peer{Name: own.Subject.CommonName}
	var err error
	if peer.Proof.Key, err = x509.MarshalPKIXPublicKey(own.PublicKey); err != nil {
		return Peer{}, err
	}

	if i.Certified() {
		peer.Proof.Chain = convert.Slice(state.PeerCertificates, func(c *x509.Certificate) []byte { return c.Raw })
	} else if err := own.CheckSignature(own.SignatureAlgorithm, own.RawTBSCertificate, own.Signature); err != nil {
		return Peer{}, fmt.Errorf("the certificate of %.60q is signed by %.100q, not by its own key", peer.Name,
			own.Issuer.String())
	}

	peer.Verifier, err = i.VerifierOf(peer.Proof, peer.Name)
	return peer, err
}

// ServerTLS returns the configuration of the run's server. Every client must show a certificate with the name of a
// client or of the status user: one of the authority, or without an authority one that its own key signed.
func (i Identity) ServerTLS() (*tls.Config, error) {
	conf, err := i.config(ServerName, func(p Peer) error {
		if _, ok := ClientOf(p.Name); !ok && p.Name != StatusUser {
			return fmt.Errorf("%.60q is not a client", p.Name)
		}
		return nil
	})

	if err != nil {
		return nil, err
	}

	conf.NextProtos = []string{"h2"}
	conf.ClientAuth = tls.RequireAnyClientCert
	if i.Certified() {
		conf.ClientCAs, conf.ClientAuth = i.roots, tls.RequireAndVerifyClientCert
	}

	return conf, nil
}

// ClientTLS returns the configuration of a client with a name. The server must show a certificate of the authority for
// its host and the name "server". Without an authority, its key must be the known one (PKIX), unless that is empty.
func (i Identity) ClientTLS(name string, known func() []byte) (*tls.Config, error) {
	conf, err := i.config(name, func(p Peer) error {
		if p.Name != ServerName {
			return fmt.Errorf("the certificate belongs to %.60q, not to %s", p.Name, ServerName)
		}
		if i.Certified() {
			return nil
		}
		if key := known(); len(key) > 0 && !bytes.Equal(key, p.Proof.Key) {
			return ErrOtherKey
		}
		return nil
	})

	if err != nil {
		return nil, err
	}

	// A client sends its certificate even if the server names other authorities, so that both sides report that.
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &conf.Certificates[0], nil
	}
	conf.RootCAs, conf.InsecureSkipVerify = i.roots, !i.Certified()
	return conf, nil
}

// config returns what both sides have in common. check decides about a verified other side.
func (i Identity) config(name string, check func(Peer) error) (*tls.Config, error) {
	own, err := i.certificate(name)
	if err != nil {
		return nil, err
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		SessionTicketsDisabled: true, // every connection proves its key
		VerifyConnection: func(state tls.ConnectionState) error {
			p, err := i.PeerOf(state)
			if err == nil {
				err = check(p)
			}
			return err
		}}, nil
}

// certificate returns the certificate of the authority, or without an authority one that the key signs itself.
func (i Identity) certificate(name string) (own tls.Certificate, err error) {
	if i.Key == nil {
		return own, errors.New("the identity has no key")
	}

	own = tls.Certificate{Certificate: i.chain, PrivateKey: i.Key}
	if !i.Certified() {
		t := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: time.Unix(0, 0),
			NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} // no expiry (RFC 5280, 4.1.2.5)
		der, err := x509.CreateCertificate(rand.Reader, &t, &t, i.Key.Public(), i.Key)
		if err != nil {
			return own, fmt.Errorf("the certificate of %s: %w", name, err)
		}
		own.Certificate = [][]byte{der}
	}

	own.Leaf, err = x509.ParseCertificate(own.Certificate[0])
	return own, err
}

// Renew returns the identity with the key and certificate of another one, which the same authority must have signed for
// the server.
func (i Identity) Renew(by Identity) (Identity, error) {
	if by.Key == nil || !i.Certified() {
		return i, errors.New("only a certificate can be renewed")
	}

	p, err := by.Proof()
	if err == nil {
		_, err = i.VerifierOf(p, ServerName)
	}

	if err == nil {
		i.Key, i.chain = by.Key, by.chain
	}

	return i, err
}
