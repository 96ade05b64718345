package natsserver

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/net/certs"
)

// connection is a connection that asks to be admitted.
type connection struct {
	server.ClientAuthentication
	user, password string
	state          *tls.ConnectionState
	got            *server.User
}

func (c *connection) GetOpts() *server.ClientOpts {
	return &server.ClientOpts{Username: c.user, Password: c.password}
}
func (c *connection) GetTLSConnectionState() *tls.ConnectionState { return c.state }
func (c *connection) RegisterUser(u *server.User)                 { c.got = u }
func (c *connection) RemoteAddress() net.Addr                     { return &net.TCPAddr{} }

// shows returns what a connection with a certificate shows.
func shows(name string, serial int64, end time.Time) *tls.ConnectionState {
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{SerialNumber: big.NewInt(serial), NotAfter: end,
		Subject: pkix.Name{CommonName: name}}}}
}

// With TLS a worker or the server is admitted as the user of its certificate's number, until that ends. Without TLS the
// token is enough; without both everyone is a worker. The run's own user needs its secret. A guess of the token takes
// half a second.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later, now := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
		open, withTLS := Options{}, Options{TLS: &tls.Config{}}
		token := Options{Token: "token"}
		both := Options{TLS: &tls.Config{}, Token: "token"}
		for i, c := range []struct {
			Options
			connection
			want string // user, or the reason of the refusal
		}{
			{open, connection{}, certs.WorkerUser}, {open, connection{password: "any"}, certs.WorkerUser},
			{open, connection{user: ownUser, password: "secret"}, ownUser},
			{open, connection{user: ownUser, password: "other"}, certs.WorkerUser},
			{both, connection{user: ownUser, password: "secret"}, ownUser},
			{token, connection{password: "token"}, certs.WorkerUser},
			{token, connection{password: "guess"}, "wrong token"},
			{withTLS, connection{}, "no certificate"},
			{withTLS, connection{state: &tls.ConnectionState{}}, "no certificate"},
			{withTLS, connection{state: shows("worker", 7, later)}, "7"},
			{withTLS, connection{state: shows("server", 8, later)}, "8"},
			{withTLS, connection{state: shows("client-1", 9, later)},
				`the certificate of \"client-1\" is not that of a worker`},
			{withTLS, connection{state: shows("worker", 7, now)}, "the certificate of worker expired on"},
			{both, connection{state: shows("worker", 7, later), password: "token"}, "7"},
		} {
			var log strings.Builder
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			a := &authenticator{Options: c.Options, secret: "secret"}
			began := time.Now()
			ok := a.Check(&c.connection)
			switch took := time.Since(began); {
			case (took > 0) != (c.want == "wrong token") || took > 0 && took < time.Second/2:
				t.Errorf("case %d: the answer takes %v", i, took)
			case ok && (c.got == nil || c.got.Username != c.want):
				t.Errorf("case %d: admitted as %+v, want %s", i, c.got, c.want)
			case !ok && (!strings.Contains(log.String(), c.want) || a.refused.Load() != 1):
				t.Errorf("case %d: refused with %s, %d times, want %s", i, log.String(), a.refused.Load(), c.want)
			case ok && c.state != nil && !c.got.ConnectionDeadline.Equal(later):
				t.Errorf("case %d: until %v, want %v", i, c.got.ConnectionDeadline, later)
			}
		}
	})
}

// A configuration of TLS may give its certificates elsewhere: then the address is the stated one.
func TestURLWithoutCertificates(t *testing.T) {
	e := &Server{port: 1, auth: &authenticator{Options: Options{Listen: "127.0.0.1:0", TLS: &tls.Config{}}}}
	if got := e.URL(); got != "tls://127.0.0.1:1" {
		t.Error(got)
	}
}

// Users whose certificates have ended, and no others, lose their connections.
func TestRevokedUsers(t *testing.T) {
	a := &authenticator{}
	for serial, end := range map[int64]time.Time{7: time.Now().Add(-time.Minute), 8: time.Now().Add(time.Hour)} {
		cert := shows("worker", serial, end).PeerCertificates[0]
		a.certs.Store(cert.SerialNumber.String(), cert)
	}
	if got := a.revokedUsers(); len(got) != 1 || !got["7"] {
		t.Errorf("%v", got)
	}
}
