package nettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/federation/net/certs"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, pool: x509.NewCertPool()}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	a.pool.AddCert(a.cert)
	return a
}

func (a *Authority) make(c, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour)
	by := a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

// TLS returns a configuration with the certificate of a name.
func (a *Authority) TLS(name string, hosts ...string) *tls.Config {
	a.t.Helper()
	c, key := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, ClientCAs: a.pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}}}
}

func (a *Authority) Identity(name string) certs.Identity {
	a.t.Helper()
	who, err := certs.FromTLS(a.TLS(name))
	if err != nil {
		a.t.Fatal(err)
	}
	return who
}

// SlowLink limits the bytes a second in each direction, and cuts all connections after every so many bytes.
type SlowLink struct {
	To    string
	Rate  float64
	Every int64
	Sum   atomic.Int64
	Cuts  atomic.Int64
	mu    sync.Mutex
	open  map[net.Conn]bool
}

func (s *SlowLink) Start(t testing.TB) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s.open = map[net.Conn]bool{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", s.To)
			if err != nil {
				c.Close()
				continue
			}
			s.mu.Lock()
			s.open[c], s.open[d] = true, true
			s.mu.Unlock()
			go s.carry(c, d)
			go s.carry(d, c)
		}
	}()
	return l.Addr().String()
}

func (s *SlowLink) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for began, sent := time.Now(), 0; ; {
		n, err := io.CopyN(to, from, 16<<10)
		sent += int(n)
		time.Sleep(time.Until(began.Add(time.Duration(float64(sent) / s.Rate * float64(time.Second)))))
		if before := s.Sum.Add(n) - n; before/s.Every != (before+n)/s.Every {
			s.Cuts.Add(1)
			s.mu.Lock()
			for c := range s.open {
				c.Close()
			}
			clear(s.open)
			s.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// FreeAddress returns a loopback address with a port that is free now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
