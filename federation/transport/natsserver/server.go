// Package natsserver runs a NATS server inside the process that serves a run, where every user may do what
// transport/subjects permits and no more, and writes the configuration of a nats-server that does the same.
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

	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/subjects"
)

// Options says how to run a NATS server in this process.
type Options struct {
	Listen  string                // HOST:PORT; port 0 for any that is free
	Run     string                // the run, or the queue, whose subjects may be used
	Workers bool                  // it is for workers, not for clients
	Token   string                // that clients must give; empty for none
	TLS     *tls.Config           // nil for none; with client certificates, each names its client
	Revoked *certs.RevocationList // certificates that nobody gets in with, and whose connections are cut
	Limit   int                   // largest message, in bytes
	Log     *slog.Logger
}

// Server is a NATS server in this process.
type Server struct {
	server *server.Server
	auth   *authenticator
	conn   *nats.Conn
	stop   chan struct{}
	tls    *tls.Config
}

// Start starts a NATS server and connects to it without a network. It has no JetStream: there is nothing on it that
// could be asked to do something with other rights than the asker's.
func Start(e Options) (*Server, error) {
	host, port, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %q: %w; give HOST:PORT, such as :4222", e.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return nil, fmt.Errorf("--listen %q: the port must be a number up to 65535", e.Listen)
	}
	if n > 0 { // the NATS server would try for long
		l, err := net.Listen("tcp", e.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w; choose another address", e.Listen, err)
		}
		l.Close()
	} else {
		n = server.RANDOM_PORT
	}
	g := &authenticator{run: e.Run, token: e.Token, certificates: e.TLS != nil &&
		e.TLS.ClientAuth == tls.RequireAndVerifyClientCert, workers: e.Workers,
		secret: subjects.NewID(), log: e.Log, revoked: e.Revoked, open: map[string]int{},
		banned: map[string]time.Time{}, seen: map[string]*x509.Certificate{}}
	o := &server.Options{ServerName: "promptfed-" + e.Run, Host: host, Port: n, NoSigs: true, NoLog: true,
		MaxPayload: int32(e.Limit), CustomClientAuthentication: g, TLSConfig: e.TLS, TLS: e.TLS != nil, TLSTimeout: 5,
		MaxControlLine: 4096, WriteDeadline: 30 * time.Second, PingInterval: time.Minute,
		MaxConn: mostConnections()}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	out := &Server{server: s, auth: g, stop: make(chan struct{}), tls: e.TLS}
	g.connections = out.connections
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("no NATS server on %s: the port may be in use, or the disk full; choose another "+
			"--listen", e.Listen)
	}
	out.conn, err = nats.Connect("nats://in-process", nats.InProcessServer(s), nats.UserInfo(serverUser, g.secret),
		nats.Name("promptfed serve"),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ErrorHandler(func(_ *nats.Conn,
			_ *nats.Subscription, err error) {
			e.Log.Debug("NATS", "error", err)
		}))
	if err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	if g.certificates {
		go out.watch()
	}
	return out, nil
}

// Conn is the server's own connection.
func (e *Server) Conn() *nats.Conn { return e.conn }

// URL is where clients connect to, also from other machines where the server listens on all addresses.
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

// host is a name of this machine for others: one that the certificate is for, or the address that packets to other
// networks leave from (none is sent), or what the machine calls itself.
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

// certificate is the one that the server shows; nil without TLS.
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

// connections is how many a user has.
func (e *Server) connections(user string) int {
	list, err := e.server.Connz(&server.ConnzOptions{Username: true, User: user, Limit: maxConnections})
	if err != nil {
		return 0
	}
	return list.NumConns
}

// Ban cuts off a client, and keeps it out for a while.
func (e *Server) Ban(client int) {
	user := certs.UserOf(client)
	e.auth.ban(user)
	e.cut(user, func(*server.ConnInfo) bool { return true })
}

// cut ends connections of a user.
func (e *Server) cut(user string, which func(*server.ConnInfo) bool) {
	list, err := e.server.Connz(&server.ConnzOptions{Username: true, User: user, Limit: 1 << 10})
	if err != nil {
		return
	}
	for _, c := range list.Conns {
		if which(c) {
			e.server.DisconnectClientByID(c.Cid)
		}
	}
}

// watch ends the connections of certificates that were revoked or expired meanwhile.
func (e *Server) watch() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
		}
		if _, err := e.auth.revoked.Refresh(); err != nil {
			e.auth.log.Error("cannot read", "error", err)
		}
		users, sums := e.auth.invalidUsers()
		for _, user := range users {
			e.cut(user, func(c *server.ConnInfo) bool {
				return len(c.TLSPeerCerts) > 0 && sums[c.TLSPeerCerts[0].CertSha256]
			})
		}
	}
}

// Close stops the server.
func (e *Server) Close() {
	close(e.stop)
	e.conn.Close()
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
