package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// caName is the name of the authority's own certificate. A folder holds NAME.pem and NAME-key.pem for each name.
const caName = "ca"

// others are the names that are not of clients.
var others = []string{certs.ServerName, certs.StatusUser, certs.WorkerUser}

// lockFile is the file in the authority's folder that a process locks while it uses the authority.
const lockFile = "lock"

// authorityYears is how long an authority lasts: longer than any run, since its end is that of all its certificates.
const authorityYears = 20

func certFile(dir, name string) string { return filepath.Join(dir, name+".pem") }
func keyFile(dir, name string) string  { return filepath.Join(dir, name+"-key.pem") }

// Say gets one line for each action.
type Say func(format string, a ...any)

// Make makes the missing certificates with their keys in one folder, and returns their number. A certificate of the
// server that is there must be for all given hosts.
func Make(dir, authority string, clients int, hosts []string, life time.Duration) (int, error) {
	maker, err := open(dir, authority, life)
	if err != nil {
		return maker.made, err
	}
	defer maker.lock.Close()

	if path := certFile(dir, certs.ServerName); there(path) {
		if err := checkAddresses(path, hosts); err != nil {
			return maker.made, err
		}
	}

	names := slices.Clone(others)
	for k := range clients {
		names = append(names, certs.UserOf(k))
	}

	for _, name := range names {
		if there(certFile(dir, name)) {
			continue
		}
		// the key comes before the certificate, so that no certificate is without a key
		key, err := certs.OpenKey(keyFile(dir, name), generate)
		if err == nil {
			err = maker.issue(name, hosts, key.Public())
		}
		if err != nil {
			return maker.made, err
		}
	}

	return maker.made, nil
}

// maker signs certificates in a folder.
type maker struct {
	dir      string // of the certificates
	folder   string // of the authority
	keyPath  string // of the authority
	lock     *flock.Flock
	from, to time.Time // of certificates
	ca       *x509.Certificate
	key      crypto.Signer
	made     int
}

// open opens the authority of two folders, and makes a missing one. It waits until no other process uses the authority;
// the caller closes the lock.
func open(dir, authority string, life time.Duration) (*maker, error) {
	now := time.Now()
	m := &maker{dir: dir, folder: authority, keyPath: keyFile(authority, caName), from: now.Add(-time.Hour),
		to: now.Add(life), lock: flock.New(filepath.Join(authority, lockFile), flock.SetPermissions(0o600))}
	for _, d := range []string{dir, authority} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return m, err
		}
	}

	// Some network file systems have no locks.
	if err := m.lock.Lock(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENOLCK) {
		return m, fmt.Errorf("cannot lock the authority: %w; make its folder writable", err)
	}

	err := m.authority()
	if err == nil {
		err = checkEnd(certFile(dir, caName), m.ca)
	}

	if err != nil {
		m.lock.Close()
		return m, err
	}

	if m.ca.NotAfter.Before(m.to) {
		m.to = m.ca.NotAfter
	}

	return m, nil
}

// authority reads the folder's authority, or makes one.
func (m *maker) authority() error {
	cert := certFile(m.dir, caName)
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

	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("%s: it is not a key that promptfed certs made", m.keyPath)
	}

	m.key, m.ca = key, pair.Leaf
	return nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// create makes a new authority.
func (m *maker) create() error {
	var err error
	if m.key, err = certs.NewKey(m.keyPath, generate); err != nil {
		return err
	}

	m.ca = &x509.Certificate{Subject: pkix.Name{CommonName: "promptfed authority"}, IsCA: true,
		NotBefore: m.from, NotAfter: m.from.AddDate(authorityYears, 0, 0), BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	m.ca, err = m.sign(caName, *m.ca, m.ca, m.key.Public())
	return err
}

// issue makes the certificate of a name for a public key.
func (m *maker) issue(name string, hosts []string, key crypto.PublicKey) error {
	t := x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: m.from, NotAfter: m.to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if name == certs.ServerName {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		t.DNSNames, t.IPAddresses = addresses(hosts)
	}

	_, err := m.sign(name, t, m.ca, key)
	return err
}

// localHosts are the addresses of a server for which none are given.
var localHosts = []string{"localhost", "127.0.0.1", "::1"}

// hostName matches the names that clients compare with the host of a URL.
var hostName = regexp.MustCompile(`^(\*\.)?([\w-]{1,63}\.)*[\w-]{1,63}$`)

// CheckHosts returns an error unless there are hosts, and each is an IP address or a name that a certificate can have.
func CheckHosts(hosts []string) error {
	if len(hosts) == 0 {
		return errors.New("--host: no address is given")
	}

	for _, host := range hosts {
		if net.ParseIP(host) == nil && !hostName.MatchString(host) {
			return fmt.Errorf("--host %.60q: expected an IP address or a name in ASCII (xn--... for other letters), "+
				"without scheme, brackets and port", host)
		}
	}

	return nil
}

// checkAddresses returns an error unless the server's certificate in a file is for all hosts.
func checkAddresses(path string, hosts []string) error {
	c, err := readCert(path)
	if err != nil {
		return err
	}

	for _, host := range hosts {
		if err := c.VerifyHostname(host); err != nil {
			return fmt.Errorf("%s: %w; make a new one with --renew server and all addresses with --host", path, err)
		}
	}

	return nil
}

// addresses separates names of hosts from IP addresses.
func addresses(hosts []string) (names []string, ips []net.IP) {
	if len(hosts) == 0 {
		hosts = localHosts
	}

	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, h)
		}
	}

	return names, ips
}

// sign signs a certificate and writes it.
func (m *maker) sign(name string, t x509.Certificate, by *x509.Certificate, key crypto.PublicKey) (
	*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, &t, by, key, m.key)
	if err != nil {
		return nil, err
	}

	m.made++
	if err := writeCert(certFile(m.dir, name), der); err != nil {
		return nil, err
	}

	return x509.ParseCertificate(der)
}

func writeCert(path string, der []byte) error {
	return atomicfile.Write(path, atomicfile.Bytes(certs.EncodePEM(certs.CertificateBlock, der)))
}

func readCert(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	c, err := certs.DecodePEM(text, certs.CertificateBlock, x509.ParseCertificate)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}

	return c, err
}

// generate makes a private key.
func generate() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }
