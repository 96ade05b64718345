package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// requestOf returns a request of a key.
func requestOf(t testing.TB, key crypto.Signer, csr x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &csr, key)
	goldentest.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: certs.RequestBlock, Bytes: der})
}

func named(name string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
}

func curveKey(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	goldentest.NoError(t, err)
	return key
}

// wantRequest makes a request in a new folder.
func wantRequest(t *testing.T, name string, hosts ...string) (Request, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "own")
	r, err := MakeRequest(dir, name, hosts)
	goldentest.NoError(t, err)
	return r, dir
}

// holder is one who has an authority.
type holder struct {
	t           *testing.T
	dir, signer string
}

func newHolder(t *testing.T) *holder {
	root := t.TempDir()
	return &holder{t: t, dir: filepath.Join(root, "certs"), signer: filepath.Join(root, "signer")}
}

func (h *holder) approve(r Request, replace bool, hosts ...string) error {
	return Approve(h.dir, h.signer, r, hosts, nil, replace, time.Hour, func(string, ...any) {})
}

func (h *holder) mustApprove(r Request, replace bool, hosts ...string) *x509.Certificate {
	h.t.Helper()
	goldentest.NoError(h.t, h.approve(r, replace, hosts...))
	c, err := readCert(certFile(h.dir, r.Name))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *holder) replace(revoke, renew []string) error {
	return Replace(h.dir, h.signer, revoke, renew, nil, time.Hour, func(string, ...any) {})
}

// Keys and folders are private; requests and certificates are not secret. A second request has the same key.
func TestRequestFiles(t *testing.T) {
	r, dir := wantRequest(t, "client-3")
	again, err := MakeRequest(dir, "client-3", nil)
	if err != nil || again.Fingerprint != r.Fingerprint {
		t.Errorf("the second request has the key %s, not %s: %v", again.Fingerprint, r.Fingerprint, err)
	}
	h := newHolder(t)
	h.mustApprove(r, false)
	for path, want := range map[string]os.FileMode{dir: 0o700, keyFile(dir, "client-3"): 0o600, h.dir: 0o700,
		h.signer: 0o700, keyFile(h.signer, caName): 0o600, requestFile(dir, "client-3"): 0o644,
		certFile(h.dir, "client-3"): 0o644} {
		st, err := os.Stat(path)
		if err != nil {
			t.Error(err)
		} else if runtime.GOOS != "windows" && st.Mode().Perm() != want {
			t.Errorf("%s has the mode %#o, not %#o", path, st.Mode().Perm(), want)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	goldentest.NoError(t, os.Chmod(keyFile(dir, "client-3"), 0o640))
	_, err = MakeRequest(dir, "client-3", nil)
	goldentest.WantError(t, err, "chmod 600", keyFile(dir, "client-3"))
}

// A request uses a key of any accepted kind that is there, and does not overwrite a file that holds no such key.
func TestRequestOfOwnKey(t *testing.T) {
	dir := t.TempDir()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	goldentest.NoError(t, err)
	write := func(key any) {
		t.Helper()
		der, err := x509.MarshalPKCS8PrivateKey(key)
		goldentest.NoError(t, err)
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		goldentest.NoError(t, os.WriteFile(keyFile(dir, "worker"), text, 0o600))
	}
	for _, key := range []crypto.Signer{edwards, curveKey(t, elliptic.P384())} {
		write(key)
		r, err := MakeRequest(dir, "worker", nil)
		if err != nil || r.Fingerprint != fingerprint(key.Public()) {
			t.Errorf("%T: %+v, %v", key, r, err)
		}
		newHolder(t).mustApprove(r, false)
	}
	write(curveKey(t, elliptic.P521()))
	before := read(t, keyFile(dir, "worker"))
	_, err = MakeRequest(dir, "worker", nil)
	goldentest.WantError(t, err, keyFile(dir, "worker"), "P-256", "move it away")
	if read(t, keyFile(dir, "worker")) != before {
		t.Error("the key has changed")
	}
}

// Wrong requests are refused in one line.
func TestReadRequest(t *testing.T) {
	key := curveKey(t, elliptic.P256())
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	goldentest.NoError(t, err)
	good := requestOf(t, key, named("client-3"))
	forged, _ := pem.Decode(good)
	forged.Bytes = bytes.Replace(forged.Bytes, []byte("client-3"), []byte("client-4"), 1)
	path := filepath.Join(t.TempDir(), "x.csr")
	for what, text := range map[string][]byte{
		"BEGIN CERTIFICATE REQUEST": []byte("nothing"),
		"no signing request":        pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forged.Bytes}),
		"damaged":                   pem.EncodeToMemory(&pem.Block{Type: certs.RequestBlock, Bytes: forged.Bytes[:99]}),
		"does not have the key":     pem.EncodeToMemory(forged),
		"at most 16384 bytes":       append(bytes.Repeat([]byte("\n"), maxRequest), good...),
		"neither ECDSA":             requestOf(t, weak, named("client-3")),
		"P-384 nor":                 requestOf(t, curveKey(t, elliptic.P521()), named("client-3")),
		`"" is not a name`:          requestOf(t, key, x509.CertificateRequest{}),
		`"client-03" is not`:        requestOf(t, key, named("client-03")),
		`"client--1" is not`:        requestOf(t, key, named("client--1")),
		`"client-1048576" is not`:   requestOf(t, key, named("client-1048576")),
		`"ca" is not`:               requestOf(t, key, named("ca")),
		`"../client-3" is not`:      requestOf(t, key, named("../client-3")),
		`"\x1b[2Jserver\n" is not`:  requestOf(t, key, named("\x1b[2Jserver\n")),
	} {
		filetest.Write(t, path, text)
		_, err := ReadRequest(path)
		goldentest.WantError(t, err, path, what, "nothing was signed")
	}
	// PEM ignores what stands before it, so a file may be filled up to the limit.
	filetest.Write(t, path, append(bytes.Repeat([]byte("\n"), maxRequest-len(good)), good...))
	if r, err := ReadRequest(path); err != nil || r.Name != "client-3" {
		t.Errorf("a file of the largest size: %+v, %v", r, err)
	}
	_, err = ReadRequest(filepath.Dir(path))
	goldentest.WantError(t, err, filepath.Dir(path))
	_, err = MakeRequest(filepath.Dir(path), "client-x", nil)
	goldentest.WantError(t, err, `"client-x" is not a name`)
	dir := t.TempDir()
	_, err = MakeRequest(dir, "server", []string{strings.Repeat("a", maxRequest)})
	goldentest.WantError(t, err, "at most 16384 bytes")
	if _, err := os.Stat(requestFile(dir, "server")); !os.IsNotExist(err) {
		t.Error("a request that no one can sign was written:", err)
	}
}

func TestMatches(t *testing.T) {
	r := Request{Fingerprint: strings.Repeat("0123456789abcdef", 4)}
	for digits, want := range map[string]bool{"": false, "0123456789abcde": false, "0123456789abcdef": true,
		"0123456789ABCDEF01": true, "0123456789abcdee": false, r.Fingerprint: true, r.Fingerprint + "0": false} {
		if r.Matches(digits) != want {
			t.Errorf("%q: %v", digits, !want)
		}
	}
}

// A certificate has the name and the key of its request, and the addresses that the holder gives to a server; nothing
// else of the request.
func TestApprove(t *testing.T) {
	h := newHolder(t)
	greedy := named("client-3")
	greedy.Subject.Organization = []string{"bank"}
	greedy.DNSNames = []string{"server"}
	greedy.ExtraExtensions = []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true,
		Value: []byte{0x30, 3, 1, 1, 0xff}}} // a certificate authority
	r, err := parseRequest(requestOf(t, curveKey(t, elliptic.P256()), greedy))
	goldentest.NoError(t, err)
	c := h.mustApprove(r, false)
	if c.Subject.String() != "CN=client-3" || len(c.DNSNames) > 0 || c.IsCA || len(c.ExtKeyUsage) != 1 ||
		c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("%+v", c)
	}
	server, _ := wantRequest(t, "server", "fed.example.org", "2001:DB8::1")
	goldentest.WantError(t, h.approve(server, false, "localhost", "2001:db8::1"), `"fed.example.org"`, "--host")
	c = h.mustApprove(server, false, "fed.example.org", "2001:db8:0::1", "localhost")
	if strings.Join(c.DNSNames, " ") != "fed.example.org localhost" || len(c.IPAddresses) != 1 {
		t.Errorf("%v %v", c.DNSNames, c.IPAddresses)
	}
	if names, _ := filepath.Glob(filepath.Join(h.dir, "*key*")); len(names) > 0 {
		t.Errorf("keys in the authority's folder: %v", names)
	}
}

// A name has one valid certificate. The holder renews or revokes the old one; a revoked key never comes back.
func TestSecondRequest(t *testing.T) {
	h := newHolder(t)
	first, dir := wantRequest(t, "client-3")
	old := h.mustApprove(first, false)
	second, _ := wantRequest(t, "client-3")
	goldentest.WantError(t, h.approve(second, false), certFile(h.dir, "client-3"), "--renew client-3",
		"--revoke client-3")
	h.mustApprove(first, false) // its key is the same
	kept := replacedFile(h.signer, "client-3", old.SerialNumber.String())
	if c, err := readCert(kept); err != nil || !c.Equal(old) {
		t.Errorf("the old certificate is not kept: %v", err)
	}
	h.mustApprove(second, true)
	goldentest.WantError(t, h.replace(nil, []string{"client-3"}), "--renew client-3", "key", "--request client-3",
		"--approve")
	for _, pattern := range []string{"client", "*"} { // they fit names of replaced certificates
		goldentest.WantError(t, h.replace([]string{pattern}, nil), "--revoke "+pattern+": there is no such certificate")
	}
	goldentest.NoError(t, h.replace([]string{"client-3"}, nil))
	list, err := Revoked(h.dir)
	if err != nil || list.Check([]*x509.Certificate{old}, 0) == nil {
		t.Errorf("the first certificate is not revoked: %v", err)
	}
	for _, r := range []Request{first, second} {
		goldentest.WantError(t, h.approve(r, true), "revoked", "remove client-3-key.pem")
	}
	goldentest.NoError(t, os.Remove(keyFile(dir, "client-3")))
	third, err := MakeRequest(dir, "client-3", nil)
	goldentest.NoError(t, err)
	if c := h.mustApprove(third, false); list.Check([]*x509.Certificate{c}, 0) != nil {
		t.Error("the new certificate is revoked")
	}
}

// Trial certificates and approved ones share an authority. A key that is beside a certificate but does not belong to it
// is no reason to make a new one.
func TestApproveBesideTrial(t *testing.T) {
	h := newHolder(t)
	if _, err := Make(h.dir, h.signer, 2, []string{"localhost"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	r, _ := wantRequest(t, "client-1")
	h.mustApprove(r, true)
	before := read(t, keyFile(h.dir, "client-1"))
	goldentest.WantError(t, h.replace(nil, []string{"client-1"}), "private key does not match", "--request client-1")
	if n, err := Make(h.dir, h.signer, 3, nil, time.Hour); err != nil || n != 1 {
		t.Errorf("%d certificates made, %v", n, err)
	}
	if read(t, keyFile(h.dir, "client-1")) != before {
		t.Error("the key has changed")
	}
	if err := os.Chmod(keyFile(h.dir, "client-0"), 0o644); err != nil { // a reason to renew
		t.Fatal(err)
	}
	if err := h.replace(nil, []string{"client-0", "server"}); err != nil {
		t.Error(err)
	}
	if _, err := readPair(certFile(h.dir, "client-0"), keyFile(h.dir, "client-0")); err != nil {
		t.Error(err)
	}
	if c, err := readCert(certFile(h.dir, "server")); err != nil || c.VerifyHostname("localhost") != nil {
		t.Errorf("the renewed server lacks its address: %v", err)
	}
	goldentest.WantError(t, h.replace(nil, []string{"ca"}), `"ca" is not a name`)
}

func FuzzRequest(f *testing.F) {
	csr := named("server")
	csr.DNSNames = []string{"localhost"}
	good := requestOf(f, curveKey(f, elliptic.P256()), csr)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	block, _ := pem.Decode(good)
	f.Add(block.Bytes)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, b := range [][]byte{text, pem.EncodeToMemory(&pem.Block{Type: certs.RequestBlock, Bytes: text})} {
			r, err := parseRequest(b)
			if err != nil {
				if strings.ContainsFunc(err.Error(), func(c rune) bool { return c < ' ' }) {
					t.Errorf("%q is not one line of text", err)
				}
				continue
			}
			if sum, err := hex.DecodeString(r.Fingerprint); err != nil || len(sum) != 32 || checkName(r.Name) != nil {
				t.Errorf("%+v", r)
			}
		}
	})
}
