package transport_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"promptfed/federation/transport"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) make(c, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
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

// tls is a configuration with a certificate of a name.
func (a *authority) tls(name string) *tls.Config {
	a.t.Helper()
	c, key := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0,
		1)}}, a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, ClientCAs: a.pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}}
}

func (a *authority) identity(name string) transport.Identity {
	a.t.Helper()
	who, err := transport.IdentityOf(a.tls(name))
	if err != nil {
		a.t.Fatal(err)
	}
	return who
}

// slowLink carries so many bytes a second each way, and cuts all connections whenever another so many bytes have
// passed.
type slowLink struct {
	to    string
	rate  float64
	every int64
	sum   atomic.Int64
	cuts  atomic.Int64
	mu    sync.Mutex
	open  map[net.Conn]bool
}

func (s *slowLink) start(t testing.TB) (address string) {
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
			d, err := net.Dial("tcp", s.to)
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

func (s *slowLink) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for began, sent := time.Now(), 0; ; {
		n, err := io.CopyN(to, from, 16<<10)
		sent += int(n)
		time.Sleep(time.Until(began.Add(time.Duration(float64(sent) / s.rate * float64(time.Second)))))
		if before := s.sum.Add(n) - n; before/s.every != (before+n)/s.every {
			s.cuts.Add(1)
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

// foreign starts a NATS server that knows nothing of promptfed.
func foreign(t testing.TB, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("no server")
	}
	return s
}

// operator is who runs the NATS server: it hears all and may send anything anywhere. It sends every order again, to the
// same client and to the next one, or to the next slot of a worker, a while later and in between forged ones; and so
// every other message of clients and workers.
type operator struct {
	nc  *nats.Conn
	run string
	of  int

	mu   sync.Mutex
	sent int
	old  map[string][]*nats.Msg
}

func (p *operator) hear(m *nats.Msg) {
	if m.Header.Get("Operator") != "" {
		return
	}
	words := strings.Split(m.Subject, ".")
	verb, who := words[len(words)-1], words[len(words)-2]
	client := int(who[0] - '0')
	next := fmt.Sprintf("%s%d.%s", strings.TrimSuffix(m.Subject, who+"."+verb), (client+1)%p.of, verb)
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append([]*nats.Msg{{Subject: next, Data: m.Data}, {Subject: m.Subject, Data: m.Data}}, p.old[m.Subject]...)
	if verb == "order" {
		if forged, err := transport.Forged(p.run, client, p.of); err == nil {
			list = append(list, &nats.Msg{Subject: m.Subject, Data: forged})
		}
		list = append(list, &nats.Msg{Subject: m.Subject, Data: bytes.Replace(m.Data, []byte(`"round":0`),
			[]byte(`"round":1`), 1)})
	}
	for _, x := range list {
		p.nc.PublishMsg(&nats.Msg{Subject: x.Subject, Data: x.Data, Header: nats.Header{"Operator": {"1"}}})
		p.sent++
	}
	p.old[m.Subject] = append(p.old[m.Subject], m)
	if n := len(p.old[m.Subject]); n > 5 {
		p.old[m.Subject] = p.old[m.Subject][n-5:]
	}
}
