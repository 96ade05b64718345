package transport_test

import (
	"context"
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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/methodtest"
	"promptfed/federation/transport"
	"promptfed/runtime/tensor"
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

// Orders and replies of 20 and 60 MB arrive over TLS, over a slow link that is cut several times on the way, and what
// came before a cut is not sent again. A client's folder has nothing of it left, nor has the server's.
func TestLargeObjects(t *testing.T) {
	for _, c := range []struct {
		size int     // bytes
		rate float64 // bytes a second each way
	}{{20e6, 8e6}, {60e6, 24e6}} {
		t.Run(fmt.Sprint(c.size/1e6, " MB"), func(t *testing.T) {
			ca, log := newAuthority(t), &logs{}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			emb, err := transport.Embed(transport.Embedding{Listen: "127.0.0.1:0", Run: "toy", Limit: 1 << 20,
				TLS: ca.tls("server"), Log: log.logger()})
			if err != nil {
				t.Fatal(err)
			}
			defer emb.Close()
			e := stack{"promptfl", nil, nil}.toy(t)
			dir := t.TempDir()
			h, err := transport.Open(ctx, emb.Conn(), transport.Settings{Name: "toy", ID: transport.NewID(),
				Dir: filepath.Join(dir, "hub"), Clients: 1, Quorum: 1,
				Terms: open(e.RunSpec()), Method: e.Method, Identity: ca.identity("server"), Log: log.logger()})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			link := &slowLink{to: strings.TrimPrefix(strings.TrimPrefix(emb.URL(), "nats://"), "tls://"), rate: c.rate,
				every: int64(c.size) * 3 / 5}
			address := link.start(t)
			ended := make(chan error, 1)
			go func() {
				nc, err := transport.Dial(ctx, "tls://"+address, "test", log.logger(),
					nats.CustomInboxPrefix(transport.InboxOf("toy", 0)), nats.Secure(ca.tls("client-0")))
				if err != nil {
					ended <- err
					return
				}
				defer nc.Close()
				inv, err := transport.Ask(ctx, nc, "toy", 0, ca.identity("client-0"), log.logger())
				if err != nil {
					ended <- err
					return
				}
				task := methodtest.Alike(1)[0].Backbone.Task()
				task.Backbone = "toy"
				card := transport.Card{Terms: e.RunSpec(), Member: message.Participant{Task: task}, Examples: 1}
				a, err := transport.NewAgent(nc, inv, card, filepath.Join(dir, "client"), echo(0), log.logger())
				if err == nil {
					err = a.Run(ctx)
				}
				ended <- err
			}()
			if _, err := h.Wait(ctx, 1); err != nil {
				t.Fatal(err, log.String())
			}
			big := tensor.New(c.size / 4)
			for i := range big.Data {
				big.Data[i] = float32(i % 1013)
			}
			o := message.Instruction{Kind: message.Train, Total: 1, Clients: []int{0}, Shared: tensor.Map{"ctx": big}}
			replies, err := h.Run(ctx, o)
			if err != nil || len(replies) != 1 {
				t.Fatal(len(replies), err, log.String())
			}
			back := replies[0].Upload.Shared["ctx"]
			for i, x := range big.Data {
				if back.Data[i] != x {
					t.Fatalf("element %d came back as %v", i, back.Data[i])
				}
			}
			t.Logf("%d cuts, %.2f times the bytes", link.cuts.Load(), float64(link.sum.Load())/float64(2*c.size))
			if link.cuts.Load() < 3 || float64(link.sum.Load()) > 1.1*float64(2*c.size) {
				t.Errorf("%d cuts, %d bytes passed for %d there and back", link.cuts.Load(), link.sum.Load(), c.size)
			}
			for _, d := range []string{"hub/pieces", "client"} {
				if left, _ := filepath.Glob(filepath.Join(dir, d, "order-*")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
			if info, err := os.Stat(filepath.Join(dir, "client")); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			cancel()
			<-ended
		})
	}
}
