package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// caName is the name of the authority's own certificate. A folder holds NAME.pem and NAME-key.pem for each name.
const caName = "ca"

func certFile(dir, name string) string { return filepath.Join(dir, name+".pem") }
func keyFile(dir, name string) string  { return filepath.Join(dir, name+"-key.pem") }

// Make makes the missing certificates and returns their number.
func Make(dir, authority string, clients int, hosts []string, now time.Time, life time.Duration) (int, error) {
	for _, d := range []string{dir, authority} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return 0, err
		}
	}
	m := maker{dir: dir, keyPath: keyFile(authority, caName), from: now.Add(-time.Hour), to: now.Add(life)}
	if err := m.authority(); err != nil {
		return m.made, err
	}
	server := x509.Certificate{Subject: pkix.Name{CommonName: certs.ServerName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, h)
		}
	}
	if err := m.sign(certs.ServerName, server); err != nil {
		return m.made, err
	}
	names := []string{certs.StatusUser, certs.WorkerUser}
	for k := range clients {
		names = append(names, certs.UserOf(k))
	}
	for _, name := range names {
		if err := m.sign(name, x509.Certificate{Subject: pkix.Name{CommonName: name},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return m.made, err
		}
	}
	return m.made, nil
}

// maker signs certificates in a folder.
type maker struct {
	dir      string
	keyPath  string // of the authority
	from, to time.Time
	ca       *x509.Certificate
	key      *ecdsa.PrivateKey
	made     int
}

// authority reads the folder's authority, or makes one.
func (m *maker) authority() error {
	cert, old := certFile(m.dir, caName), keyFile(m.dir, caName)
	if old != m.keyPath && there(old) && !there(m.keyPath) { // written there by an older release
		if err := os.Rename(old, m.keyPath); err != nil {
			return fmt.Errorf("cannot move the authority's key: %w; choose another --authority", err)
		}
	}
	switch hasCert, hasKey := there(cert), there(m.keyPath); {
	case hasCert && !hasKey:
		return fmt.Errorf("%s exists, but %s does not; give the folder of the authority's key with --authority", cert,
			m.keyPath)
	case hasKey && !hasCert: // a new key could neither renew nor revoke certificates of this one
		return fmt.Errorf("%s exists, but %s does not: the key belongs to another folder's authority; choose another "+
			"--authority, or remove that key if nothing that it signed is used", m.keyPath, cert)
	case !hasCert:
		return m.create()
	}
	pair, err := readPair(cert, m.keyPath)
	if err != nil {
		return fmt.Errorf("%s: %w", cert, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("%s: it is not a key that promptfed certs made", m.keyPath)
	}
	m.key = key
	m.ca, err = x509.ParseCertificate(pair.Certificate[0])
	return err
}

func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// create makes a new authority.
func (m *maker) create() error {
	var err error
	if m.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	t := x509.Certificate{Subject: pkix.Name{CommonName: "promptfed trial"}, IsCA: true,
		BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: m.from, NotAfter: m.to, SerialNumber: serial()}
	der, err := x509.CreateCertificate(rand.Reader, &t, &t, &m.key.PublicKey, m.key)
	if err != nil {
		return err
	}
	if m.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	return m.write(m.keyPath, caName, der, m.key)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil { // crypto/rand's Reader never fails
		panic(err)
	}
	return n
}

// sign makes a certificate unless it exists.
func (m *maker) sign(name string, t x509.Certificate) error {
	if there(certFile(m.dir, name)) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t.SerialNumber, t.NotBefore, t.NotAfter, t.KeyUsage = serial(), m.from, m.to, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &t, m.ca, &key.PublicKey, m.key)
	if err != nil {
		return err
	}
	return m.write(keyFile(m.dir, name), name, der, key)
}

// write writes the key before the certificate, so that no certificate is without a key.
func (m *maker) write(keyPath, name string, der []byte, key *ecdsa.PrivateKey) error {
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
	if err := atomicfile.WritePrivate(keyPath, atomicfile.Bytes(text)); err != nil {
		return err
	}
	m.made++
	return os.WriteFile(certFile(m.dir, name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
