package natsserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/subjects"
)

// Options configures the embedded NATS server.
type Options struct {
	Listen  string                // HOST:PORT; port 0 for any free port
	Run     string                // the run, or the queue, whose subjects are permitted
	Workers bool                  // serve workers, not clients
	Clients int                   // number of clients; 0 if unknown
	Token   string                // required of clients; empty for none
	TLS     *tls.Config           // nil for none; with client certificates, each names its client
	Revoked *certs.RevocationList // refused certificates, whose connections are closed
	Limit   int                   // largest message, in bytes
	Log     *slog.Logger
}

// Server is a NATS server in this process.
type Server struct {
	server   *server.Server
	auth     *authenticator
	frontend *frontend
	conn     *nats.Conn
	stop     chan struct{}
	tls      *tls.Config
}

// Start starts a NATS server and connects to it within the process. It has no JetStream, and therefore no service that
// acts with more permissions than its caller has.
func Start(e Options) (*Server, error) {
	host, port, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %q: %w; give HOST:PORT, such as :4222", e.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return nil, fmt.Errorf("--listen %q: the port must be a number up to 65535", e.Listen)
	}
	d, err := newFrontend(e)
	if err != nil {
		return nil, err
	}
	n = d.listener.Addr().(*net.TCPAddr).Port
	g := &authenticator{run: e.Run, token: e.Token, encrypted: e.TLS != nil, certificates: e.TLS != nil &&
		e.TLS.ClientAuth == tls.RequireAndVerifyClientCert, workers: e.Workers,
		secret: subjects.NewID(), log: e.Log, revoked: e.Revoked, clients: e.Clients, frontend: d,
		banned: map[string]time.Time{}}
	o := &server.Options{ServerName: "promptfed-" + e.Run, Host: host, Port: n, NoSigs: true, NoLog: true,
		MaxPayload: int32(e.Limit), CustomClientAuthentication: g, TLSConfig: e.TLS, TLS: e.TLS != nil, TLSTimeout: 5,
		MaxControlLine: 4096, WriteDeadline: 30 * time.Second, PingInterval: time.Minute,
		DontListen: true, ProxyProtocol: true}
	s, err := server.NewServer(o)
	if err != nil {
		d.listener.Close()
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	out := &Server{server: s, auth: g, frontend: d, stop: make(chan struct{}), tls: e.TLS}
	s.Start()
	out.conn, err = nats.Connect("nats://in-process", nats.InProcessServer(s), nats.UserInfo(serverUser, g.secret),
		nats.Name("promptfed serve"),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ErrorHandler(func(_ *nats.Conn,
			_ *nats.Subscription, err error) {
			e.Log.Debug("NATS", "error", err)
		}))
	if err != nil {
		s.Shutdown()
		d.listener.Close()
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	go d.open(s.InProcessConn)
	go out.watch()
	return out, nil
}

// Conn returns the run's own connection.
func (e *Server) Conn() *nats.Conn { return e.conn }

// URL returns the address for clients, valid on other machines if the server listens on all addresses.
func (e *Server) URL() string {
	u, err := url.Parse(e.server.ClientURL())
	if err != nil {
		return e.server.ClientURL()
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort(e.host(), u.Port())
	}
	return u.String()
}

// host returns a name of this machine for others: one of the certificate's names, or the source address of packets to
// other networks (none is sent), or the machine's own name.
func (e *Server) host() string {
	if c := e.certificate(); c != nil {
		for _, name := range c.DNSNames {
			if name != "localhost" && !strings.HasPrefix(name, "*") {
				return name
			}
		}
		for _, ip := range c.IPAddresses {
			if !ip.IsLoopback() {
				return ip.String()
			}
		}
	}
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil { // an address for documentation (RFC 5737)
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).IP.String()
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// certificate returns the server's certificate; nil without TLS.
func (e *Server) certificate() *x509.Certificate {
	if e.tls == nil || len(e.tls.Certificates) == 0 {
		return nil
	}
	c, err := x509.ParseCertificate(e.tls.Certificates[0].Certificate[0])
	if err != nil {
		return nil
	}
	return c
}

// Limits of a user's messages on all subjects. A message counts once more for every 32 KiB, so a piece counts as three.
// Messages that need an answer have lower limits (exchange.Budget).
const (
	watchTime = 250 * time.Millisecond
	perWatch  = 1000 // sustained, in each watchTime
	maxBurst  = 6000 // in addition: 128 MB of pieces
)

// watch closes the connections of revoked or expired certificates, and of users that send too much.
func (e *Server) watch() {
	t := time.NewTicker(watchTime)
	defer t.Stop()
	before, beyond := map[uint64]int64{}, map[any]int64{}
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
		}
		if e.auth.certificates {
			if _, err := e.auth.revoked.Refresh(); err != nil {
				e.auth.log.Error("cannot read", "error", err)
			}
			e.frontend.cut(func(g *connection) bool { return e.auth.revoked.Check([]*x509.Certificate{g.cert}) != nil })
		}
		if !e.auth.workers {
			before, beyond = e.cutFloods(before, beyond)
		}
	}
}

// cutFloods disconnects users that sent too much since the last call. before has counts by connection, beyond the
// excess over perWatch so far. Without certificates another client may use the same name: then only the connection is
// closed, and new connections with the name wait a moment.
func (e *Server) cutFloods(before map[uint64]int64, beyond map[any]int64) (now map[uint64]int64,
	next map[any]int64) {
	list, err := e.server.Connz(&server.ConnzOptions{Limit: 1 << 20})
	if err != nil {
		return before, beyond
	}
	now, next = map[uint64]int64{}, map[any]int64{}
	key := func(g *connection) any {
		if e.auth.certificates {
			return g.user
		}
		return g
	}
	for _, c := range list.Conns {
		n := c.InMsgs + c.InBytes>>15
		now[c.Cid] = n
		if g := e.frontend.connectionAt(c.IP, c.Port); g != nil {
			next[key(g)] += n - before[c.Cid]
		}
	}
	for k, n := range next {
		next[k] = max(0, beyond[k]+n-perWatch)
	}
	e.frontend.cut(func(g *connection) bool {
		flood := next[key(g)] > maxBurst
		if flood {
			e.auth.ban(g.user)
		}
		return flood
	})
	return now, next
}

// Close stops the server.
func (e *Server) Close() {
	close(e.stop)
	e.frontend.listener.Close()
	e.conn.Close()
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
