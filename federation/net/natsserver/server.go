package natsserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wait"
)

// Options configures the embedded NATS server.
type Options struct {
	Listen  string                // HOST:PORT; port 0 for any free port
	Token   string                // required of workers; empty for none
	TLS     *tls.Config           // nil for none; workers need a certificate
	Revoked *certs.RevocationList // refused certificates, whose connections are closed
	Log     *slog.Logger
}

// Server is a NATS server in this process.
type Server struct {
	server *server.Server
	conn   *nats.Conn
	stop   context.CancelFunc // ends watch
	dir    string
	port   int
	auth   *authenticator
}

const (
	// maxPayload is the largest message, in bytes.
	maxPayload = 1 << 20
	// maxConnections counts connections that are not authenticated yet, too, which end after authTime.
	maxConnections = 512
	authTime       = 5 // seconds, for the handshake of TLS and for the user
)

// Start starts a NATS server and connects to it within the process. JetStream's files are in a temporary folder.
func Start(options Options) (*Server, error) {
	l, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; give a free HOST:PORT, such as :4222", options.Listen, err)
	}

	host, _, err := net.SplitHostPort(options.Listen)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	if err != nil {
		return nil, err
	}

	ctx, stop := context.WithCancel(context.Background())
	out := &Server{port: port, stop: stop, auth: &authenticator{Options: options, secret: rand.Text(),
		logging: rate.Sometimes{Interval: 10 * time.Second}}}
	if out.dir, err = os.MkdirTemp("", "promptfed-jetstream-*"); err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}

	if err := out.start(host, port); err != nil {
		os.RemoveAll(out.dir)
		return nil, fmt.Errorf("NATS server: %w", err)
	}

	go out.watch(ctx)
	return out, nil
}

func (e *Server) start(host string, port int) (err error) {
	e.server, err = server.NewServer(&server.Options{ServerName: "promptfed", Host: host, Port: port, NoSigs: true,
		NoLog: true, MaxPayload: maxPayload, MaxConn: maxConnections, CustomClientAuthentication: e.auth,
		TLSConfig: e.auth.TLS, TLS: e.auth.TLS != nil, TLSTimeout: authTime, AuthTimeout: authTime,
		WriteDeadline: 30 * time.Second, JetStream: true, StoreDir: e.dir})

	if err != nil {
		return err
	}

	e.server.Start()
	if !e.server.ReadyForConnections(20 * time.Second) {
		err = fmt.Errorf("it does not listen on port %d of %q", port, host)
	}

	if err == nil {
		e.conn, err = nats.Connect("nats://in-process", nats.InProcessServer(e.server),
			nats.UserInfo(ownUser, e.auth.secret), nats.Name("promptfed run"), nats.MaxReconnects(-1),
			nats.ReconnectWait(100*time.Millisecond), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription,
				err error) {
				e.auth.Log.Debug("NATS", "error", err)
			}))
	}

	if err != nil {
		e.server.Shutdown()
	}

	return err
}

// URL returns the address for workers, valid on other machines if the server listens on all addresses.
func (e *Server) URL() string {
	scheme, own := "nats://", (*x509.Certificate)(nil)
	if e.auth.TLS != nil {
		scheme = "tls://"
		if len(e.auth.TLS.Certificates) > 0 {
			own = e.auth.TLS.Certificates[0].Leaf
		}
	}

	return scheme + net.JoinHostPort(certs.HostOf(e.auth.Listen, own), strconv.Itoa(e.port))
}

// Conn returns the run's own connection.
func (e *Server) Conn() *nats.Conn { return e.conn }

// Close stops the server.
func (e *Server) Close() {
	e.stop()
	e.conn.Close()
	e.server.Shutdown()
	e.server.WaitForShutdown()
	os.RemoveAll(e.dir)
}

// watch closes the connections of revoked certificates.
func (e *Server) watch(ctx context.Context) {
	for wait.For(ctx, 250*time.Millisecond) == nil {
		if err := e.auth.Revoked.Refresh(); err != nil {
			e.auth.Log.Error("cannot read", "error", err)
		}
		revoked := e.auth.revokedUsers()
		if len(revoked) == 0 {
			continue
		}
		list, err := e.server.Connz(&server.ConnzOptions{Username: true, Limit: 1 << 20})
		if err != nil {
			e.auth.Log.Error("cannot list connections", "error", err)
			continue
		}
		for _, c := range list.Conns {
			if revoked[c.AuthorizedUser] {
				e.server.DisconnectClientByID(c.Cid)
			}
		}
	}
}
