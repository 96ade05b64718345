package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"sync"
	"time"
)

// RevocationFile is the name of the list of revoked certificates, beside the authority's certificate.
const RevocationFile = "revoked.pem"

// RevocationList holds revoked certificates: the revocation list (RFC 5280, PEM "X509 CRL") of an authority, in a file
// that may change while it is in use. A nil list is empty.
type RevocationList struct {
	path      string
	authority []*x509.Certificate

	mu      sync.RWMutex
	read    os.FileInfo // state of the file when it was read
	number  *big.Int    // number of the list; an older list never replaces it
	serials map[string]bool
}

// OpenRevocationList reads the list in a file, which may be absent. The certificates of authority may sign it.
func OpenRevocationList(path string, authority []*x509.Certificate) (*RevocationList, error) {
	r := &RevocationList{path: path, authority: authority}
	return r, r.Refresh()
}

// Refresh reads a changed file again. A list that is unreadable, not signed by the authority or older than the last one
// has no effect and is reported once.
func (r *RevocationList) Refresh() error {
	if r == nil {
		return nil
	}

	info, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("revoked certificates: %w", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != nil && os.SameFile(info, r.read) && info.ModTime().Equal(r.read.ModTime()) &&
		info.Size() == r.read.Size() {
		return nil
	}

	r.read = info
	list, err := ReadRevocationList(r.path, r.authority)
	if err == nil && r.number != nil && list.Number.Cmp(r.number) < 0 {
		err = fmt.Errorf("list %d is older than list %d, which was used before", list.Number, r.number)
	}

	if err != nil {
		return fmt.Errorf("revoked certificates: %s: %w; the previous list stays in use", r.path, err)
	}

	r.number, r.serials = list.Number, map[string]bool{}
	for _, e := range list.RevokedCertificateEntries {
		r.serials[e.SerialNumber.String()] = true
	}

	return nil
}

// ReadRevocationList reads a list signed by one of the authority's certificates.
func ReadRevocationList(path string, authority []*x509.Certificate) (*x509.RevocationList, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	list, err := DecodePEM(text, RevocationBlock, x509.ParseRevocationList)
	if err != nil {
		return nil, err
	}

	if list.Number == nil {
		return nil, errors.New("the list has no number")
	}

	for _, c := range authority {
		if list.CheckSignatureFrom(c) == nil {
			return list, nil
		}
	}

	return nil, errors.New("the authority did not sign it")
}

// Check returns why one of these certificates is not valid any more. They count for so long after their end as grace.
func (r *RevocationList) Check(certificates []*x509.Certificate, grace time.Duration) error {
	for _, cert := range certificates {
		if time.Since(cert.NotAfter) > grace {
			return fmt.Errorf("the certificate of %.60s expired on %s", cert.Subject.CommonName,
				cert.NotAfter.Format(time.RFC3339))
		}
		if r == nil {
			continue
		}
		r.mu.RLock()
		revoked := r.serials[cert.SerialNumber.String()]
		r.mu.RUnlock()
		if revoked {
			return fmt.Errorf("the certificate of %.60s is revoked", cert.Subject.CommonName)
		}
	}

	return nil
}
