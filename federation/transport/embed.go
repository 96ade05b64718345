package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Embedding says how to run a NATS server in this process.
type Embedding struct {
	Listen string      // HOST:PORT; port 0 for any that is free
	Dir    string      // of JetStream's files
	Run    string      // the run whose subjects clients may use
	Token  string      // that clients must give; empty for none
	TLS    *tls.Config // nil for none; with client certificates, each names its client
	Limit  int         // largest message, in bytes
	Log    *slog.Logger
}

// Embedded is a NATS server in this process.
type Embedded struct {
	server *server.Server
	conn   *nats.Conn
}

// Embed starts a NATS server with JetStream and connects to it without a network.
func Embed(e Embedding) (*Embedded, error) {
	host, port, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %q: %w; give HOST:PORT, such as :4222", e.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return nil, fmt.Errorf("--listen %q: the port must be a number up to 65535", e.Listen)
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	gate := &gate{run: e.Run, token: e.Token, certificates: e.TLS != nil && e.TLS.ClientAuth == tls.RequireAndVerifyClientCert, secret: NewID(), log: e.Log}
	o := &server.Options{ServerName: "promptfed-" + e.Run, Host: host, Port: n, JetStream: true, StoreDir: e.Dir, NoSigs: true, NoLog: true,
		MaxPayload: int32(e.Limit), CustomClientAuthentication: gate, TLSConfig: e.TLS, TLS: e.TLS != nil, TLSTimeout: 5, MaxControlLine: 4096,
		WriteDeadline: 30 * time.Second, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 40, SyncInterval: 10 * time.Second}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("no NATS server on %s: the port may be taken, or the disk under %s full; take another --listen", e.Listen, e.Dir)
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, errors.New("the NATS server has no JetStream: its folder " + e.Dir + " cannot be used")
	}
	conn, err := nats.Connect("nats://in-process", nats.InProcessServer(s), nats.UserInfo(serverUser, gate.secret), nats.Name("promptfed serve"),
		nats.MaxReconnects(-1))
	if err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	return &Embedded{s, conn}, nil
}

// Conn is the server's own connection.
func (e *Embedded) Conn() *nats.Conn { return e.conn }

// URL is where clients connect to.
func (e *Embedded) URL() string { return e.server.ClientURL() }

// Close stops the server.
func (e *Embedded) Close() {
	e.conn.Close()
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
