package authority

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// Replace revokes certificates, then makes new ones; a stolen key needs both. say gets one line for each action.
func Replace(dir, authority string, revoke, renew []string, now time.Time, life time.Duration,
	say func(format string, a ...any)) error {
	m := maker{dir: dir, keyPath: keyFile(authority, caName), from: now.Add(-time.Hour), to: now.Add(life)}
	if _, err := os.Stat(m.keyPath); err != nil {
		return fmt.Errorf("the authority's key: %w; give its folder with --authority", err)
	}
	if err := m.authority(); err != nil {
		return err
	}
	if len(revoke) > 0 {
		if err := m.revoke(authority, revoke, now, say); err != nil {
			return err
		}
	}
	for _, name := range renew {
		old, err := readCert(certFile(dir, name))
		if err != nil {
			return fmt.Errorf("--renew %s: %w", name, err)
		}
		if err := os.Rename(certFile(dir, name), replacedFile(authority, name, old.SerialNumber.String())); err != nil {
			return err
		}
		if err := m.sign(name, x509.Certificate{Subject: old.Subject, ExtKeyUsage: old.ExtKeyUsage,
			DNSNames: old.DNSNames, IPAddresses: old.IPAddresses}); err != nil {
			return err
		}
		say("%s and %s are new; the old certificate is %s\n", certFile(dir, name), keyFile(dir, name),
			replacedFile(authority, name, old.SerialNumber.String()))
	}
	return nil
}

// replacedFile returns the file of a replaced certificate; serial may be a pattern.
func replacedFile(authority, name, serial string) string {
	return filepath.Join(authority, name+"-"+serial+".pem")
}

func readCert(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// revoke adds the certificates of a name, or the certificate of a file, to the folder's list.
func (m *maker) revoke(authority string, which []string, now time.Time,
	say func(format string, a ...any)) error {
	if m.ca.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return fmt.Errorf("%s was made by an older release and may not sign a list of revoked certificates; make a "+
			"new authority in another folder", certFile(m.dir, caName))
	}
	path := filepath.Join(m.dir, certs.RevocationFile)
	revoked, number := map[string]x509.RevocationListEntry{}, big.NewInt(1)
	old, err := certs.ReadRevocationList(path, []*x509.Certificate{m.ca})
	if err == nil {
		number.Add(old.Number, number)
		for _, e := range old.RevokedCertificateEntries {
			revoked[e.SerialNumber.String()] = e
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range which {
		files, err := filepath.Glob(replacedFile(authority, name, "*"))
		if err != nil {
			return fmt.Errorf("--revoke %s: %w", name, err)
		}
		for _, file := range []string{certFile(m.dir, name), name} {
			if _, err := os.Stat(file); err == nil {
				files = append(files, file)
			}
		}
		if len(files) == 0 {
			return fmt.Errorf("--revoke %s: there is no such certificate in %s or %s, and no such file", name, m.dir,
				authority)
		}
		for _, file := range files {
			c, err := readCert(file)
			if err == nil {
				err = c.CheckSignatureFrom(m.ca)
			}
			if err != nil {
				return fmt.Errorf("--revoke %s: %s: %w", name, file, err)
			}
			if key := c.SerialNumber.String(); revoked[key].SerialNumber == nil {
				revoked[key] = x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now}
			}
		}
	}
	list := x509.RevocationList{Number: number, ThisUpdate: now, NextUpdate: m.ca.NotAfter}
	for _, serial := range slices.Sorted(maps.Keys(revoked)) {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, revoked[serial])
	}
	der, err := x509.CreateRevocationList(rand.Reader, &list, m.ca, m.key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	if err := atomicfile.Write(path, atomicfile.Bytes(text)); err != nil {
		return err
	}
	say("certificates revoked in %s: %d; the server needs that file in the folder of its --tls\n",
		path, len(revoked))
	return nil
}
