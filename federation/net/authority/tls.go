package authority

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

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
	text, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	return certs.OpenRevocationList(filepath.Join(dir, certs.RevocationFile), text)
}

// readAuthority reads the certificate of a folder's authority.
func readAuthority(dir string) ([]byte, error) {
	text, err := os.ReadFile(certFile(dir, caName))
	if err != nil {
		err = fmt.Errorf("--tls: %w; promptfed certs makes such a folder", err)
	}
	return text, err
}

// ClientTLS returns a TLS configuration with the certificate of a name.
func ClientTLS(dir, name string) (*tls.Config, error) {
	text, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls: %s holds no certificate", certFile(dir, caName))
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
