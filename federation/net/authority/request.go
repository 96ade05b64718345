package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// Request is a signing request (PKCS #10) for one of a run's names.
type Request struct {
	Name        string
	Fingerprint string // SHA-256 of the public key (PKIX), hexadecimal
	csr         *x509.CertificateRequest
}

const maxRequest = 16 << 10 // bytes of a file

// MakeRequest writes the request of a name, DIR/NAME.csr, for the key DIR/NAME-key.pem, and makes a missing key.
func MakeRequest(dir, name string, hosts []string) (Request, error) {
	if err := checkName(name); err != nil {
		return Request{}, err
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Request{}, err
	}

	key, err := certs.OpenKey(keyFile(dir, name), generate)
	if err != nil {
		return Request{}, err
	}

	t := x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	if name == certs.ServerName {
		t.DNSNames, t.IPAddresses = addresses(hosts)
	}

	der, err := x509.CreateCertificateRequest(rand.Reader, &t, key)
	if err != nil {
		return Request{}, err
	}

	text := certs.EncodePEM(certs.RequestBlock, der)
	request, err := parseRequest(text)
	if err != nil {
		return Request{}, err
	}

	return request, atomicfile.Write(requestFile(dir, name), atomicfile.Bytes(text))
}

func requestFile(dir, name string) string { return filepath.Join(dir, name+".csr") }

// ReadRequest reads and checks the request in a file.
func ReadRequest(path string) (Request, error) {
	text, err := atomicfile.ReadAtMost(path, maxRequest)
	if err != nil {
		return Request{}, fmt.Errorf("%w; nothing was signed", err)
	}

	r, err := parseRequest(text)
	if err != nil {
		return r, fmt.Errorf("%s: %w; nothing was signed", path, err)
	}

	return r, nil
}

func parseRequest(text []byte) (Request, error) {
	if len(text) > maxRequest {
		return Request{}, fmt.Errorf("a signing request has at most %d bytes", maxRequest)
	}

	csr, err := certs.DecodePEM(text, certs.RequestBlock, x509.ParseCertificateRequest)
	if err != nil {
		return Request{}, fmt.Errorf("it holds no signing request, or a damaged one: %w", err)
	}

	if err := certs.CheckKey(csr.PublicKey); err != nil {
		return Request{}, err
	}

	if err := csr.CheckSignature(); err != nil {
		return Request{}, fmt.Errorf("the sender does not have the key of the request: %w", err)
	}

	return Request{csr.Subject.CommonName, fingerprint(csr.PublicKey), csr}, checkName(csr.Subject.CommonName)
}

// checkName returns an error unless a certificate may have a name.
func checkName(name string) error {
	if _, ok := certs.ClientOf(name); ok || slices.Contains(others, name) {
		return nil
	}

	return fmt.Errorf("%.60q is not a name of a run: expected client-K (K is a number from 0), %s, %s or %s", name,
		certs.StatusUser, certs.WorkerUser, certs.ServerName)
}

func fingerprint(key crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil { // not a key that CheckKey accepts
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(der))
}

// MinFingerprint is the smallest number of hexadecimal digits of a fingerprint that Matches accepts.
const MinFingerprint = 16

// Matches reports whether digits begin the fingerprint of the request.
func (r Request) Matches(digits string) bool {
	return len(digits) >= MinFingerprint && strings.HasPrefix(r.Fingerprint, strings.ToLower(digits))
}

// Approve signs the certificate of a request. Of the request it uses the name and the key; hosts are the addresses of a
// server. It first revokes certificates as Replace does. Approve refuses a key whose certificate is revoked. It
// replaces a valid certificate for another key only with replace. What it refuses changes no certificate.
func Approve(dir, authority string, request Request, hosts, revoke []string, replace bool, life time.Duration,
	say Say) error {
	if err := request.checkHosts(hosts); err != nil {
		return err
	}

	maker, err := open(dir, authority, life)
	if err != nil {
		return err
	}
	defer maker.lock.Close()

	list, err := maker.toRevoke(revoke)
	if err != nil {
		return err
	}

	files, err := maker.files(request.Name)
	if err != nil {
		return err
	}

	path := certFile(dir, request.Name)
	var old *x509.Certificate
	for _, file := range files {
		cert, err := readCert(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		same, revoked := fingerprint(cert.PublicKey) == request.Fingerprint, lists(list, cert)
		if same && revoked {
			return fmt.Errorf("the key of the request belongs to %s, which is or would be revoked; remove %s where "+
				"the request was made, and request again", file, keyFile("", request.Name))
		}

		if file != path {
			continue
		}

		if old = cert; !same && !revoked && !replace && time.Now().Before(cert.NotAfter) {
			return fmt.Errorf("%s is a valid certificate for another key; if the request really comes from %s, add "+
				"--renew %s (the old certificate stays valid) or --revoke %s (its key may be stolen)", path,
				request.Name, request.Name, request.Name)
		}
	}

	if len(revoke) > 0 {
		if err := maker.revoke(list, say); err != nil {
			return err
		}
	}

	if old != nil {
		kept, err := maker.keep(request.Name, old)
		if err != nil {
			return err
		}
		say("the old certificate is %s\n", kept)
	}

	if err := maker.issue(request.Name, hosts, request.csr.PublicKey); err != nil {
		return err
	}

	say("%s is valid until %s: send it and %s back; neither is secret\n", path, maker.to.Format(time.DateOnly),
		certFile(dir, caName))
	return nil
}

// checkHosts returns an error if a server requests an address that is not among hosts.
func (r Request) checkHosts(hosts []string) error {
	if r.Name != certs.ServerName {
		return nil
	}

	allowed := certs.Hosts(addresses(hosts))
	for _, host := range certs.Hosts(r.csr.DNSNames, r.csr.IPAddresses) {
		if !slices.Contains(allowed, host) {
			return fmt.Errorf("the request asks for the address %.60q; give all addresses that the server may have "+
				"with --host", host)
		}
	}

	return nil
}
