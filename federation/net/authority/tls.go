package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// Identity returns the identity of a name, with the folder's revoked certificates.
func Identity(dir, name string) (who certs.Identity, err error) {
	conf, err := ClientTLS(dir, name)
	if err == nil {
		who, err = certs.FromTLS(conf)
	}

	if err == nil {
		who.Revoked, err = Revoked(dir)
	}

	return who, err
}

// ServerTLS returns a TLS configuration that requires client certificates of the folder's authority.
func ServerTLS(dir string) (*tls.Config, error) {
	conf, err := ClientTLS(dir, certs.ServerName)
	if err != nil {
		return nil, err
	}
	conf.ClientCAs, conf.ClientAuth = conf.RootCAs, tls.RequireAndVerifyClientCert
	return conf, nil
}

// Revoked returns the revoked certificates of a folder.
func Revoked(dir string) (*certs.RevocationList, error) {
	ca, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	return certs.OpenRevocationList(filepath.Join(dir, certs.RevocationFile), ca)
}

// readAuthority reads the certificates of a folder's authority. The first ends last, and must not have ended.
func readAuthority(dir string) ([]*x509.Certificate, error) {
	path := certFile(dir, caName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--tls: %w; promptfed certs makes such a folder", err)
	}

	list, err := certs.DecodeCertificates(text)
	if err == nil && len(list) == 0 {
		err = errors.New("it holds no certificate")
	}

	if err != nil {
		return nil, fmt.Errorf("--tls: %s: %w", path, err)
	}

	slices.SortStableFunc(list, func(a, b *x509.Certificate) int { return b.NotAfter.Compare(a.NotAfter) })
	return list, checkEnd(path, list[0])
}

// End returns when the authority of a folder ends, and with it all its certificates.
func End(dir string) (time.Time, error) {
	list, err := readAuthority(dir)
	if err != nil {
		return time.Time{}, err
	}
	return list[0].NotAfter, nil
}

// checkEnd returns an error if an authority's certificate, from the file at path, has ended.
func checkEnd(path string, ca *x509.Certificate) error {
	if time.Now().After(ca.NotAfter) {
		return fmt.Errorf("the authority %s ended on %s; make a new one with promptfed certs in another folder, and "+
			"give its ca.pem and new certificates to all machines", path, ca.NotAfter.Format(time.DateOnly))
	}
	return nil
}

// ClientTLS returns a TLS configuration with the certificate of a name.
func ClientTLS(dir, name string) (*tls.Config, error) {
	list, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	for _, ca := range list {
		pool.AddCert(ca)
	}

	pair, err := readPair(certFile(dir, name), keyFile(dir, name))
	if err != nil {
		return nil, fmt.Errorf("--tls: certificate of %s: %w", name, err)
	}

	if is := pair.Leaf.Subject.CommonName; is != name {
		return nil, fmt.Errorf("--tls: %s is the certificate of %.60q, not of %s", certFile(dir, name), is, name)
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}

// readPair reads a certificate and its key, which must be readable by its owner only.
func readPair(certPath, keyPath string) (tls.Certificate, error) {
	cert, err := os.ReadFile(certPath)
	if err != nil {
		return tls.Certificate{}, err
	}

	key, err := atomicfile.ReadPrivate(keyPath)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(cert, key)
}
