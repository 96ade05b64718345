package authority

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/net/certs"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func read(t *testing.T, path string) string {
	t.Helper()
	return string(filetest.Read(t, path))
}

// The key of an authority stays when another folder is given it, or another key lies beside the certificates: without
// it the first folder's certificates could neither be renewed nor revoked.
func TestKeyStays(t *testing.T) {
	root := t.TempDir()
	dir, other, signer := filepath.Join(root, "one"), filepath.Join(root, "other"), filepath.Join(root, "signer")
	start := func(dir string, clients int) (int, error) {
		return Make(dir, signer, clients, []string{"localhost"}, time.Hour)
	}
	if n, err := start(dir, 1); err != nil || n != 5 { // ca, server, status, worker, client-0
		t.Fatalf("%d certificates, %v", n, err)
	}
	key := read(t, keyFile(signer, caName))
	_, err := start(other, 1)
	goldentest.WantError(t, err, keyFile(signer, caName), certFile(other, caName), "--authority")
	filetest.Write(t, keyFile(dir, caName), "another key")
	if n, err := start(dir, 2); err != nil || n != 1 {
		t.Errorf("%d more certificates, %v", n, err)
	}
	if read(t, keyFile(signer, caName)) != key {
		t.Error("the authority has another key")
	}
	one := []string{certs.UserOf(1)}
	goldentest.NoError(t, Replace(dir, signer, one, one, nil, time.Hour, func(string, ...any) {}))
}

// A folder of certificates needs the key that signed them.
func TestKeyElsewhere(t *testing.T) {
	dir, signer := t.TempDir(), t.TempDir()
	if _, err := Make(dir, dir, 1, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err := Make(dir, signer, 2, nil, time.Hour)
	goldentest.WantError(t, err, certFile(dir, caName), keyFile(signer, caName), "--authority")
}

// Whoever uses an authority at once with others, from its first use on, gets a valid certificate and a lasting
// revocation.
func TestAtOnce(t *testing.T) {
	h := newHolder(t)
	var group errgroup.Group
	for k := range 16 {
		r, _ := wantRequest(t, certs.UserOf(k))
		group.Go(func() error { return errors.Join(h.approve(r, false), h.replace([]string{r.Name}, nil)) })
	}
	goldentest.NoError(t, group.Wait())
	ca, err := readCert(certFile(h.dir, caName))
	goldentest.NoError(t, err)
	list, err := Revoked(h.dir)
	goldentest.NoError(t, err)
	for k := range 16 {
		c, err := readCert(certFile(h.dir, certs.UserOf(k)))
		if err != nil || c.CheckSignatureFrom(ca) != nil || list.Check([]*x509.Certificate{c}, 0) == nil {
			t.Errorf("the certificate of client %d is of another authority, or not revoked: %v", k, err)
		}
	}
}

// An authority lasts for 20 years, and its certificates at most as long. One that has ended is refused everywhere.
func TestEnd(t *testing.T) {
	h := newHolder(t)
	_, short := Make(h.dir, h.signer, 0, nil, time.Hour)
	_, long := Make(h.dir, h.signer, 1, nil, 100*365*24*time.Hour)
	goldentest.NoError(t, errors.Join(short, long))
	end, err := End(h.dir)
	c, e := readCert(certFile(h.dir, certs.UserOf(0)))
	if errors.Join(err, e) != nil || end.Year() < time.Now().Year()+19 || !c.NotAfter.Equal(end) {
		t.Errorf("the authority ends on %v, a certificate on %v; %v, %v", end, c.NotAfter, err, e)
	}
	m, err := open(h.dir, h.signer, time.Hour)
	goldentest.NoError(t, err)
	ca := *m.ca
	ca.NotAfter = time.Unix(1e9, 0)
	_, err = m.sign(caName, ca, &ca, m.key.Public())
	goldentest.NoError(t, errors.Join(err, m.lock.Close()))
	_, makes := Make(h.dir, h.signer, 2, nil, time.Hour)
	_, opens := ClientTLS(h.dir, certs.UserOf(0))
	r, _ := wantRequest(t, certs.UserOf(1))
	for _, err := range []error{makes, opens, h.approve(r, false), h.replace(nil, []string{certs.UserOf(0)})} {
		goldentest.WantError(t, err, certFile(h.dir, caName)+" ended on 2001-09-09")
	}
}

// The configuration of a name has its certificate, valid from an hour ago, and the authority's; another's is refused.
func TestClientTLS(t *testing.T) {
	dir, signer := t.TempDir(), t.TempDir()
	if _, err := Make(dir, signer, 1, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	conf, err := ClientTLS(dir, certs.UserOf(0))
	if err != nil || conf.RootCAs == nil {
		t.Fatal(err)
	}
	leaf := conf.Certificates[0].Leaf
	if valid := leaf.NotAfter.Sub(leaf.NotBefore); leaf.Subject.CommonName != "client-0" || valid != 2*time.Hour {
		t.Errorf("%s is valid for %v, not an hour before and one after now", leaf.Subject, valid)
	}
	for _, file := range []func(string, string) string{certFile, keyFile} {
		goldentest.NoError(t, os.Rename(file(dir, certs.UserOf(0)), file(dir, "server")))
	}
	_, err = ClientTLS(dir, "server")
	goldentest.WantError(t, err, `is the certificate of "client-0", not of server`)
	_, err = ClientTLS(dir, certs.UserOf(0))
	goldentest.WantError(t, err, "--tls: certificate of client-0")
	err = Replace(dir, signer, []string{"nobody"}, nil, nil, time.Hour, func(string, ...any) {})
	goldentest.WantError(t, err, "--revoke nobody: there is no such certificate")
	err = Replace(dir, signer, []string{caName}, nil, nil, time.Hour, func(string, ...any) {})
	goldentest.WantError(t, err, "an authority cannot revoke itself")
	if err := Replace(dir, signer, nil, nil, nil, time.Hour, func(string, ...any) {}); err != nil ||
		there(filepath.Join(dir, certs.RevocationFile)) {
		t.Errorf("nothing to revoke makes a list; %v", err)
	}
	_, err = (&maker{dir: dir, ca: &x509.Certificate{KeyUsage: x509.KeyUsageCertSign}}).toRevoke([]string{"x"})
	goldentest.WantError(t, err, certFile(dir, caName)+" may not sign a list of revoked certificates")
	filetest.Write(t, certFile(dir, caName), "nothing")
	_, err = ClientTLS(dir, "server")
	goldentest.WantError(t, err, certFile(dir, caName)+": it holds no certificate")
}
