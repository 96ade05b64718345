package natsserver

import (
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"

	"promptfed/federation/net/certs"
)

// authenticator decides who may connect: the run itself, and workers with the token and a valid certificate.
type authenticator struct {
	Options
	secret  string       // password of the run's own connection
	certs   sync.Map     // certificates of connected workers, by user
	refused atomic.Int64 // connections
	logging rate.Sometimes
}

// ownUser is the user of the run's own connection.
const ownUser = "promptfed-run"

// guessPause is the delay of the answer to a wrong token.
const guessPause = 500 * time.Millisecond

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Check admits a connection.
func (a *authenticator) Check(client server.ClientAuthentication) bool {
	options := client.GetOpts()
	if same(options.Username, ownUser) && same(options.Password, a.secret) {
		client.RegisterUser(&server.User{Username: ownUser})
		return true
	}

	user := &server.User{Username: certs.WorkerUser}
	if a.TLS != nil {
		state := client.GetTLSConnectionState()
		if state == nil || len(state.PeerCertificates) == 0 {
			return a.refuse(client, "no certificate")
		}
		cert := state.PeerCertificates[0]
		if name := cert.Subject.CommonName; name != certs.WorkerUser && name != certs.ServerName {
			return a.refuse(client, fmt.Sprintf("the certificate of %.60q is not that of a worker", name))
		}
		if err := a.Revoked.Check(state.PeerCertificates, 0); err != nil {
			return a.refuse(client, err.Error())
		}
		user.Username, user.ConnectionDeadline = cert.SerialNumber.String(), cert.NotAfter
		a.certs.Store(user.Username, cert)
	}

	if a.Token != "" && !same(options.Password, a.Token) {
		time.Sleep(guessPause)
		return a.refuse(client, "wrong token")
	}

	client.RegisterUser(user)
	return true
}

// refuse logs a refusal, at limited intervals.
func (a *authenticator) refuse(c server.ClientAuthentication, why string) bool {
	refused := a.refused.Add(1)
	a.logging.Do(func() {
		a.Log.Warn("a connection is refused", "from", c.RemoteAddress(), "reason", why, "refused", refused)
	})
	return false
}

// revokedUsers returns the users whose certificates are revoked.
func (a *authenticator) revokedUsers() map[string]bool {
	out := map[string]bool{}
	a.certs.Range(func(user, cert any) bool {
		if a.Revoked.Check([]*x509.Certificate{cert.(*x509.Certificate)}, 0) != nil {
			out[user.(string)] = true
		}
		return true
	})

	return out
}
