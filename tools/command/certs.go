package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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

	"github.com/spf13/cobra"

	"promptfed/federation/transport/certs"
)

// Files of a folder that promptfed certs makes: a certificate NAME.pem and its key NAME-key.pem for each name.
const (
	caName     = "ca"
	serverName = certs.ServerName
)

func certFile(dir, name string) string { return filepath.Join(dir, name+".pem") }
func keyFile(dir, name string) string  { return filepath.Join(dir, name+"-key.pem") }

func certsCommand() *cobra.Command {
	clients, days := 0, 90
	var hosts []string
	var authority string
	var renew, revoke []string
	c := &cobra.Command{Use: "certs DIR --clients N [--host NAME ...] [--authority DIR] | certs DIR [--revoke NAME] " +
		"[--renew NAME]", Args: exactly(1),
		Short: "make a small certificate authority for a trial: a certificate for the server and one for each client"}
	c.Flags().IntVar(&clients, "clients", 0, "how many clients; those that have a certificate keep it")
	c.Flags().IntVar(&days, "days", days, "how long the certificates are good for")
	c.Flags().StringSliceVar(&hosts, "host", []string{"localhost", "127.0.0.1", "::1"},
		"names and addresses under which clients reach the server")
	c.Flags().StringVar(&authority, "authority", "", "folder of the authority's key, which no server and no client "+
		"needs (default DIR-authority)")
	c.Flags().StringSliceVar(&revoke, "revoke", nil, "write all certificates of NAME (client-K, server, status, "+
		"worker), or the one in a file, into the list "+certs.RevocationFile+" of DIR, which a running serve heeds")
	c.Flags().StringSliceVar(&renew, "renew", nil, "make a new certificate and key for NAME; the old certificate goes "+
		"to the authority's folder and counts until it is revoked")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if authority == "" {
			authority = filepath.Clean(args[0]) + "-authority"
		}
		if len(renew)+len(revoke) > 0 && clients == 0 && days >= 1 {
			return replaceCerts(args[0], authority, revoke, renew, time.Now(), time.Duration(days)*24*time.Hour)
		}
		if clients < 1 || clients > 1<<16 || days < 1 {
			return usageError{fmt.Errorf("--clients %d, --days %d: each must be 1 or more, and there can be 65536 "+
				"clients", clients, days)}
		}
		made, err := makeCerts(args[0], authority, clients, hosts, time.Now(), time.Duration(days)*24*time.Hour)
		if err != nil {
			return err
		}
		fmt.Printf("%d certificates made in %s: give each client %s.pem, client-K.pem and client-K-key.pem; %s makes "+
			"more of them: keep it apart, the server does not need it\n",
			made, args[0], caName, authority)
		return nil
	}
	return c
}

// makeCerts makes the certificates that are not there yet, and tells how many that were.
func makeCerts(dir, authority string, clients int, hosts []string, now time.Time, life time.Duration) (int, error) {
	for _, d := range []string{dir, authority} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return 0, err
		}
	}
	m := maker{dir: dir, keyPath: keyFile(authority, caName), from: now.Add(-time.Hour), to: now.Add(life)}
	if err := m.authority(); err != nil {
		return m.made, err
	}
	server := x509.Certificate{Subject: pkix.Name{CommonName: serverName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, h)
		}
	}
	if err := m.sign(serverName, server); err != nil {
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

// authority reads the folder's authority, or makes it.
func (m *maker) authority() error {
	if old := keyFile(m.dir, caName); old != m.keyPath { // where an older release left it, beside what the server needs
		if _, err := os.Stat(old); err == nil {
			if err := os.Rename(old, m.keyPath); err != nil {
				return fmt.Errorf("cannot move the authority's key: %w; give another --authority", err)
			}
		}
	}
	_, none := os.Stat(certFile(m.dir, caName))
	pair, err := tls.LoadX509KeyPair(certFile(m.dir, caName), m.keyPath)
	if errors.Is(err, fs.ErrNotExist) && none == nil {
		return fmt.Errorf("%s is there, but %s is not; give the folder of the authority's key with --authority",
			certFile(m.dir, caName), m.keyPath)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if m.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
		t := x509.Certificate{Subject: pkix.Name{CommonName: "promptfed trial"}, IsCA: true,
			BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: m.from, NotAfter: m.to,
			SerialNumber: serial()}
		m.ca = &t
		der, err := x509.CreateCertificate(rand.Reader, &t, &t, &m.key.PublicKey, m.key)
		if err != nil {
			return err
		}
		if m.ca, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		return m.write(m.keyPath, caName, der, m.key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", certFile(m.dir, caName), err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("%s: not a key that promptfed certs made", m.keyPath)
	}
	m.key = key
	m.ca, err = x509.ParseCertificate(pair.Certificate[0])
	return err
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil { // the reader of crypto/rand gives none
		panic(err)
	}
	return n
}

// sign makes a certificate, unless there is one.
func (m *maker) sign(name string, t x509.Certificate) error {
	if _, err := os.Stat(certFile(m.dir, name)); err == nil {
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

// write writes the key first, so that a certificate is never without one.
func (m *maker) write(keyPath, name string, der []byte, key *ecdsa.PrivateKey) error {
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600); err != nil {
		return err
	}
	m.made++
	return os.WriteFile(certFile(m.dir, name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
