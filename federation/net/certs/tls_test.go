package certs_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/goldentest"
)

// issuer is an authority in memory.
type issuer struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	a := &issuer{key: key, cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId: []byte{1}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour)}}
	a.cert = a.sign(t, a.cert, key.Public())
	return a
}

func (a *issuer) sign(t *testing.T, c *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key, a.key)
	goldentest.NoError(t, err)
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c
}

// identity returns the identity of a certificate with a name, a serial number and an end.
func (a *issuer) identity(t *testing.T, name string, serial int64, end time.Time) certs.Identity {
	t.Helper()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	c := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: end, DNSNames: []string{"here"}}, key.Public())
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	i, err := certs.FromTLS(&tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}})
	goldentest.NoError(t, err)
	return i
}

func (a *issuer) named(t *testing.T, name string) certs.Identity {
	return a.identity(t, name, 7, time.Now().Add(time.Hour))
}

// revoked writes a list with a number.
func (a *issuer) revoked(t *testing.T, path string, number *big.Int, serials ...int64) {
	t.Helper()
	list := &x509.RevocationList{Number: number, ThisUpdate: time.Unix(0, 0), NextUpdate: time.Now().Add(time.Hour)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(s), RevocationTime: time.Unix(0, 0)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err == nil {
		err = os.WriteFile(path, certs.EncodePEM(certs.RevocationBlock, der), 0o600)
	}
	goldentest.NoError(t, err)
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// handshake connects a client to a server in memory and returns both errors.
func handshake(t *testing.T, server, client certs.Identity, name string, known []byte) (atServer, atClient error) {
	t.Helper()
	s, err := server.ServerTLS()
	goldentest.NoError(t, err)
	c, err := client.ClientTLS(name, func() []byte { return known })
	goldentest.NoError(t, err)
	c.ServerName = "here"
	a, b := net.Pipe()
	done := make(chan error)
	go func() {
		defer a.Close()
		conn := tls.Server(a, s)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		done <- err
	}()
	defer b.Close()
	conn := tls.Client(b, c)
	if atClient = conn.Handshake(); atClient == nil {
		_, atClient = conn.Read(make([]byte, 1)) // the server's refusal comes after the handshake
	}
	b.Close()
	return <-done, atClient
}

// With an authority each side must have its certificate and a role: a client or the status user, and the server.
// Without, the server must have the known key.
func TestHandshakes(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	server := ca.named(t, certs.ServerName)
	key := func(i certs.Identity) ([]byte, certs.Identity) {
		i, err := i.WithKey("")
		goldentest.NoError(t, err)
		p, err := i.Proof()
		goldentest.NoError(t, err)
		return p.Key, i
	}
	bareKey, bare := key(certs.Identity{})
	wrongKey, one := key(certs.Identity{})
	for what, c := range map[string]struct {
		server, client     certs.Identity
		name               string
		known              []byte
		atServer, atClient string // "": no error; "-": any
	}{
		"a client":          {server, ca.named(t, "client-3"), "client-3", nil, "", ""},
		"the status user":   {server, ca.named(t, certs.StatusUser), certs.StatusUser, nil, "", ""},
		"nobody":            {server, ca.named(t, "nobody"), "nobody", nil, `"nobody" is not a client`, "-"},
		"another authority": {server, other.named(t, "client-3"), "client-3", nil, "-", "certificate"},
		"a client as server": {ca.named(t, "client-1"), ca.named(t, "client-3"), "client-3", nil, "-",
			`belongs to "client-1", not to server`},
		"a renewed server": {server, ca.named(t, "client-3"), "client-3", wrongKey, "", ""},
		"no authority":     {bare, one, "client-3", nil, "", ""},
		"the known key":    {bare, one, "client-3", bareKey, "", ""},
		"another key":      {bare, one, "client-3", wrongKey, "-", "the server of this run has another key"},
		"a bare client":    {server, one, "client-3", nil, "-", "-"},
		"nobody of no one": {bare, one, "nobody", nil, `"nobody" is not a client`, "-"},
	} {
		atServer, atClient := handshake(t, c.server, c.client, c.name, c.known)
		if c.atServer != "-" {
			says(t, what+", server", atServer, c.atServer)
		} else if atServer == nil {
			t.Errorf("%s: the server does not refuse", what)
		}
		if c.atClient != "-" {
			says(t, what+", client", atClient, c.atClient)
		} else if atClient == nil {
			t.Errorf("%s: the client does not refuse", what)
		}
	}
	ca.cert.NotAfter = time.Unix(1e9, 0)
	ca.cert = ca.sign(t, ca.cert, ca.key.Public())
	_, err := handshake(t, server, ca.named(t, "client-3"), "client-3", nil)
	says(t, "an authority that has ended", certs.Explain("hub", "", err), "of hub, ca.pem, ended on 2001-09-09; ask")
	if _, err := (certs.Identity{}).ServerTLS(); err == nil || err.Error() != "the identity has no key" {
		t.Errorf("%v", err)
	}
	if conf, err := server.ServerTLS(); err != nil || conf.ClientAuth != tls.RequireAndVerifyClientCert ||
		conf.MinVersion != tls.VersionTLS13 {
		t.Errorf("%+v, %v", conf, err)
	}
}

// The other side of a connection is who its certificate names, signed by the authority or by its own key.
func TestPeerOf(t *testing.T) {
	ca := newIssuer(t)
	bare, err := certs.Identity{}.WithKey("")
	goldentest.NoError(t, err)
	_, err = bare.PeerOf(tls.ConnectionState{})
	says(t, "no certificate", err, "the other side sent no certificate")
	c := ca.named(t, "client-1")
	_, err = bare.PeerOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{ca.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "client-1"}}, c.Key.Public())}})
	says(t, "a certificate of others", err, `the certificate of "client-1" is signed by "CN=ca", not by its own key`)
	p, err := c.Proof()
	goldentest.NoError(t, err)
	if _, err = c.VerifierOf(p, "client-1"); err != nil {
		t.Error(err)
	}
	other, err := ca.named(t, "client-1").Proof()
	goldentest.NoError(t, err)
	p.Key = other.Key
	_, err = c.VerifierOf(p, "client-1")
	says(t, "another key", err, "the key does not belong to the certificate of client-1")
	p.Chain = nil
	_, err = c.VerifierOf(p, "client-1")
	says(t, "no chain", err, "client-1 sent no certificate")
	for range 9 {
		p.Chain = append(p.Chain, other.Chain[0])
	}
	_, err = c.VerifierOf(p, "client-1")
	says(t, "nine certificates", err, "client-1 sent no certificate")
	p.Chain, p.Key = p.Chain[:8], other.Key
	if _, err = c.VerifierOf(p, "client-1"); err != nil {
		t.Errorf("eight certificates: %v", err)
	}
}

func TestRenew(t *testing.T) {
	ca := newIssuer(t)
	old, fresh := ca.named(t, certs.ServerName), ca.named(t, certs.ServerName)
	got, err := old.Renew(fresh)
	if err != nil || !got.Key.(ed25519.PrivateKey).Equal(fresh.Key) {
		t.Errorf("the key is not renewed, %v", err)
	}
	_, err = old.Renew(ca.named(t, "client-1"))
	says(t, "a client's", err, `the certificate belongs to "client-1", not to server`)
	_, err = old.Renew(newIssuer(t).named(t, certs.ServerName))
	says(t, "another authority", err, "the certificate of server")
	_, err = old.Renew(certs.Identity{})
	says(t, "no key", err, "only a certificate can be renewed")
	_, err = certs.Identity{}.Renew(fresh)
	says(t, "no authority", err, "only a certificate can be renewed")
}

// A changed list counts if the authority signed it and it is not older; a certificate ends at its date.
func TestRevokedCertificates(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	path := filepath.Join(t.TempDir(), certs.RevocationFile)
	authority := certs.EncodePEM(certs.CertificateBlock, ca.cert.Raw)
	r, err := certs.OpenRevocationList(path, []*x509.Certificate{ca.cert})
	goldentest.NoError(t, err)
	c := func(serial int64, end time.Time) []*x509.Certificate {
		return []*x509.Certificate{{SerialNumber: big.NewInt(serial), NotAfter: end,
			Subject: pkix.Name{CommonName: "x"}}}
	}
	later, stamp := time.Now().Add(time.Hour), time.Unix(1e9, 0)
	refresh := func(what, want string) {
		t.Helper()
		stamp = stamp.Add(time.Second) // a file of another time was changed
		goldentest.NoError(t, os.Chtimes(path, stamp, stamp))
		says(t, what, r.Refresh(), want)
		if err := r.Refresh(); err != nil {
			t.Errorf("%s: reported twice, %v", what, err)
		}
	}
	if err := r.Check(c(7, later), 0); err != nil {
		t.Error(err)
	}
	ca.revoked(t, path, big.NewInt(3), 7)
	refresh("a first list", "")
	says(t, "revoked", r.Check(append(c(8, later), c(7, later)...), 0), "the certificate of x is revoked")
	says(t, "another", r.Check(c(8, later), 0), "")
	ca.revoked(t, path, big.NewInt(3), 7)
	refresh("the same list", "")
	ca.revoked(t, path, big.NewInt(2))
	refresh("an older list", "list 2 is older than list 3, which was used before; the previous list stays")
	other.revoked(t, path, big.NewInt(4))
	refresh("another authority", "the authority did not sign it; the previous list stays in use")
	goldentest.NoError(t, os.WriteFile(path, authority, 0o600))
	refresh("no list", "it does not begin as PEM, with BEGIN X509 CRL")
	says(t, "still revoked", r.Check(c(7, later), 0), "is revoked")
	ca.revoked(t, path, big.NewInt(4), 7, 8)
	refresh("a newer list", "")
	says(t, "revoked later", r.Check(c(8, later), 0), "is revoked")
	goldentest.NoError(t, os.Remove(path))
	says(t, "without a file", r.Refresh(), "")
	var none *certs.RevocationList
	says(t, "no list", errors.Join(none.Refresh(), none.Check(c(7, later), 0)), "")
	says(t, "expired", none.Check(c(7, time.Unix(1e9, 0)), 0), "the certificate of x expired on 2001-09-09T")
	if _, err := certs.DecodeCertificates(certs.EncodePEM("X", []byte{1})); err == nil {
		t.Error("a damaged authority is taken")
	}
	i := ca.named(t, "client-1")
	i.Revoked, err = r, nil
	p, err := i.Proof()
	goldentest.NoError(t, err)
	_, err = i.VerifierOf(p, "client-1")
	says(t, "a revoked identity", err, "the certificate of client-1 is revoked")
}

func TestClientOf(t *testing.T) {
	for user, want := range map[string]int{"client-0": 0, "client-12": 12, "client-1048575": 1<<20 - 1,
		"client-1048576": -1, "client--1": -1, "client-01": -1, "client-+1": -1, "12": -1, "client-": -1,
		"server": -1} {
		if got, ok := certs.ClientOf(user); ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %v", user, got, ok)
		}
	}
}

// Clients elsewhere reach a host by its address, a name of its certificate, or an address that is no loopback.
func TestHostOf(t *testing.T) {
	named := &x509.Certificate{DNSNames: []string{"localhost", "*.a", "b", "c"}}
	numbered := &x509.Certificate{DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1),
		net.IPv4(192, 0, 2, 7)}}
	for address, want := range map[string]string{"10.0.0.1:80": "b", "a.b:80": "b", "c:80": "c", "x.a:80": "x.a",
		"0.0.0.0:80": "b", ":80": "b", "[::]:80": "b", "no port": "b"} {
		if got := certs.HostOf(address, named); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := certs.HostOf(":80", numbered); got != "192.0.2.7" {
		t.Error(got)
	}
	local := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if got := certs.HostOf(":80", local); got != "127.0.0.1" {
		t.Error(got)
	}
	if got := certs.HostOf("10.0.0.1:80", nil); got != "10.0.0.1" {
		t.Error(got)
	}
	for _, address := range []string{":80", "0.0.0.0:80"} {
		if got := certs.HostOf(address, nil); got == "" || got == "0.0.0.0" {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestKinds(t *testing.T) {
	for curve, ok := range map[elliptic.Curve]bool{elliptic.P256(): true, elliptic.P384(): true, elliptic.P224(): false,
		elliptic.P521(): false} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		goldentest.NoError(t, err)
		if err := certs.CheckKey(key.Public()); (err == nil) != ok {
			t.Errorf("%s: %v", curve.Params().Name, err)
		}
	}
	says(t, "no key", certs.CheckKey(nil), "the key is neither ECDSA P-256 or P-384 nor Ed25519")
	path := filepath.Join(t.TempDir(), "key.pem")
	goldentest.NoError(t, os.WriteFile(path, certs.EncodePEM("X", []byte{1}), 0o600))
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	goldentest.NoError(t, err)
	_, err = certs.NewKey(path+"2", func() (crypto.Signer, error) { return weak, nil })
	says(t, "a key", err, "")
	_, err = certs.OpenKey(path+"2", nil)
	says(t, "a weak key", err, "key.pem2 holds no ECDSA P-256, P-384 or Ed25519 key in PKCS #8; move it away")
	_, err = certs.OpenKey(path, nil)
	says(t, "another file", err, "key.pem holds no ECDSA P-256, P-384 or Ed25519 key in PKCS #8; move it away")
	roots := x509.NewCertPool()
	one := []tls.Certificate{{PrivateKey: 1}}
	for want, conf := range map[string]*tls.Config{"has no certificate or no authority": {RootCAs: roots},
		"no certificate or no authority": {Certificates: one}, "the certificate's key cannot sign": {RootCAs: roots,
			Certificates: one}} {
		_, err := certs.FromTLS(conf)
		says(t, "a configuration", err, want)
	}
}
