package nettest

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Authority is a certificate authority in a folder.
type Authority struct {
	t           testing.TB
	dir, signer string
	hosts       []string // of the server
}

// NewAuthority returns an authority. hosts are more names of the server.
func NewAuthority(t testing.TB, hosts ...string) *Authority {
	return &Authority{t, t.TempDir(), t.TempDir(), append(hosts, "127.0.0.1")}
}

// TLS returns a configuration with the certificate of a name.
func (a *Authority) TLS(name string) *tls.Config {
	a.t.Helper()
	client, _ := certs.ClientOf(name)
	_, err := authority.Make(a.dir, a.signer, client+1, a.hosts, time.Hour)
	goldentest.NoError(a.t, err)

	open := authority.ServerTLS
	if name != certs.ServerName {
		open = func(dir string) (*tls.Config, error) { return authority.ClientTLS(dir, name) }
	}

	conf, err := open(a.dir)
	goldentest.NoError(a.t, err)

	return conf
}

// Identity returns the signing identity of a name, by the certificate of TLS.
func (a *Authority) Identity(name string) certs.Identity {
	a.t.Helper()
	who, err := certs.FromTLS(a.TLS(name))
	goldentest.NoError(a.t, err)
	return who
}

// SlowLink limits the bytes a second in each direction, and cuts all connections after some numbers of bytes.
type SlowLink struct {
	To    string
	Rate  float64
	Every int64   // bytes between two cuts; 0 for none
	At    []int64 // bytes before other cuts
	Sum   atomic.Int64
	Cuts  atomic.Int64
	mu    sync.Mutex
	open  map[net.Conn]bool
}

// Start listens on a free port of this machine until the test ends, and returns its address. Every connection is
// carried to s.To.
func (s *SlowLink) Start(t testing.TB) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)

	t.Cleanup(func() { listener.Close() })
	s.open = map[net.Conn]bool{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			d, err := net.Dial("tcp", s.To)
			if err != nil {
				conn.Close()
				continue
			}

			s.mu.Lock()
			s.open[conn], s.open[d] = true, true
			s.mu.Unlock()
			go s.carry(conn, d)
			go s.carry(d, conn)
		}
	}()

	return listener.Addr().String()
}

// Cut ends all connections.
func (s *SlowLink) Cut() {
	s.Cuts.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
	clear(s.open)
}

func (s *SlowLink) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for began, sent := time.Now(), 0; ; {
		n, err := io.CopyN(to, from, 16<<10)
		sent += int(n)
		busytest.Delay(time.Until(began.Add(time.Duration(float64(sent) / s.Rate * float64(time.Second)))))
		after := s.Sum.Add(n)
		before := after - n
		if s.Every > 0 && before/s.Every != after/s.Every ||
			slices.ContainsFunc(s.At, func(at int64) bool { return before < at && at <= after }) {
			s.Cut()
		}
		if err != nil {
			return
		}
	}
}
