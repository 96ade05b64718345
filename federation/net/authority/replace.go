package authority

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
)

// Replace revokes certificates, then makes new ones; a stolen key needs both. A new certificate of the server is for
// hosts, or without them for those of the old one.
func Replace(dir, authority string, revoke, renew, hosts []string, life time.Duration, say Say) error {
	if _, err := os.Stat(keyFile(authority, caName)); err != nil {
		return fmt.Errorf("the authority's key: %w; give its folder with --authority", err)
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

	replaced := make([]*x509.Certificate, len(renew))
	for i, name := range renew {
		cert, err := certFile(dir, name), checkName(name)
		if err == nil {
			replaced[i], err = readCert(cert)
		}

		if err != nil {
			return fmt.Errorf("--renew %s: %w", name, err)
		}

		if _, err := tls.LoadX509KeyPair(cert, keyFile(dir, name)); err != nil { // whatever the mode of the key is
			return fmt.Errorf("--renew %s: the key of its certificate is not here (%w): ask for a new request "+
				"(promptfed certs DIR --request %s) and --approve it", name, err, name)
		}
	}

	if len(revoke) > 0 {
		if err := maker.revoke(list, say); err != nil {
			return err
		}
	}

	for i, name := range renew {
		cert, key, old := certFile(dir, name), keyFile(dir, name), replaced[i]
		kept, err := maker.keep(name, old)
		if err != nil {
			return err
		}

		fresh := key + ".new" // the old key stays until there is a certificate for the new one
		made, err := certs.NewKey(fresh, generate)
		if err == nil {
			addresses := hosts
			if len(addresses) == 0 {
				addresses = certs.Hosts(old.DNSNames, old.IPAddresses)
			}
			err = maker.issue(name, addresses, made.Public())
		}

		if err == nil {
			err = os.Rename(fresh, key)
		}

		if err != nil {
			return err
		}

		say("%s and %s are new; the old certificate is %s\n", cert, key, kept)
	}

	return nil
}

// keep copies a certificate that will be replaced to the authority's folder, so that it can be revoked there.
func (m *maker) keep(name string, old *x509.Certificate) (path string, err error) {
	path = replacedFile(m.folder, name, old.SerialNumber.String())
	return path, writeCert(path, old.Raw)
}

// replacedFile returns the file of a replaced certificate; serial may be a pattern.
func replacedFile(authority, name, serial string) string {
	return filepath.Join(authority, name+"-"+serial+".pem")
}

// files returns the files of all certificates of a name; none for what is no name, whose pattern would fit others.
func (m *maker) files(name string) (files []string, err error) {
	if checkName(name) == nil {
		files, err = filepath.Glob(replacedFile(m.folder, name, "[0-9]*"))
	}

	if path := certFile(m.dir, name); there(path) {
		files = append(files, path)
	}
	return files, err
}

// revoked reads the folder's list of revoked certificates. Without a file the list is empty.
func (m *maker) revoked() (*x509.RevocationList, error) {
	path := filepath.Join(m.dir, certs.RevocationFile)
	list, err := certs.ReadRevocationList(path, []*x509.Certificate{m.ca})
	if errors.Is(err, fs.ErrNotExist) {
		return &x509.RevocationList{Number: new(big.Int)}, nil
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return list, nil
}

// lists reports whether a list has a certificate.
func lists(list *x509.RevocationList, c *x509.Certificate) bool {
	return slices.ContainsFunc(list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool {
		return e.SerialNumber.Cmp(c.SerialNumber) == 0
	})
}

// toRevoke returns the folder's list with the certificates of names, or of files, as well. It changes no file.
func (m *maker) toRevoke(which []string) (*x509.RevocationList, error) {
	if len(which) > 0 && m.ca.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return nil, fmt.Errorf("%s may not sign a list of revoked certificates; make a new authority in another folder",
			certFile(m.dir, caName))
	}

	list, err := m.revoked()
	if err != nil {
		return nil, err
	}

	for _, name := range which {
		files, err := m.files(name)
		if err != nil {
			return nil, fmt.Errorf("--revoke %s: %w", name, err)
		}

		if there(name) {
			files = append(files, name)
		}

		if len(files) == 0 {
			return nil, fmt.Errorf("--revoke %s: there is no such certificate in %s or %s, and no such file", name,
				m.dir, m.folder)
		}

		for _, file := range files {
			c, err := readCert(file)
			if err == nil {
				err = c.CheckSignatureFrom(m.ca)
			}
			if err == nil && c.IsCA {
				err = errors.New("an authority cannot revoke itself; make a new one in another folder")
			}
			if err != nil {
				return nil, fmt.Errorf("--revoke %s: %s: %w", name, file, err)
			}
			if !lists(list, c) {
				list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
					x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
			}
		}
	}

	return list, nil
}

// revoke signs a list of toRevoke and writes it into the folder.
func (m *maker) revoke(list *x509.RevocationList, say Say) error {
	list = &x509.RevocationList{Number: list.Number.Add(list.Number, big.NewInt(1)), ThisUpdate: time.Now(),
		NextUpdate: m.ca.NotAfter, RevokedCertificateEntries: list.RevokedCertificateEntries}
	der, err := x509.CreateRevocationList(rand.Reader, list, m.ca, m.key)
	if err != nil {
		return err
	}

	path := filepath.Join(m.dir, certs.RevocationFile)
	if err := atomicfile.Write(path, atomicfile.Bytes(certs.EncodePEM(certs.RevocationBlock, der))); err != nil {
		return err
	}

	say("certificates revoked in %s: %d; the server needs that file in the folder of its --tls\n",
		path, len(list.RevokedCertificateEntries))
	return nil
}
