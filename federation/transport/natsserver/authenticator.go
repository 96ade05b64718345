package natsserver

import (
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/subjects"
)

// serverUser is the user of the run's own connection.
const serverUser = "promptfed-server"

// authenticator decides who may connect to an embedded NATS server and what they may do there.
type authenticator struct {
	run          string
	token        string
	encrypted    bool   // TLS is required
	certificates bool   // client certificates are required
	workers      bool   // only workers may connect
	secret       string // password of the run's own connection
	log          *slog.Logger
	clients      int // of the run
	revoked      *certs.RevocationList
	frontend     *frontend

	mu      sync.Mutex
	banned  map[string]time.Time // disconnected users, until when
	from    map[string]bool      // addresses of refused connections since the time below
	since   time.Time
	refused int // refused connections not logged yet
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Limits.
const (
	summaryTime        = 10 * time.Second       // between two summaries of refused connections
	guessPause         = 500 * time.Millisecond // delay of the answer to a wrong token or a disconnected user
	maxConnections     = 8                      // of one user; a reconnecting user has two for a moment
	minConnections     = 2                      // likewise, if the process may open few files
	minUnauthenticated = 32                     // unauthenticated connections
	maxUnauthenticated = 256
	banTime            = 10 * time.Second
)

// Check admits a connection with the permissions of its user, who is named by the certificate, or else by the
// connection.
func (g *authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if same(o.Username, serverUser) && same(o.Password, g.secret) {
		c.RegisterUser(&server.User{Username: serverUser})
		return true
	}
	from := address(c.RemoteAddress())
	if g.encrypted && c.GetTLSConnectionState() == nil {
		return g.refuse(from, "no TLS")
	}
	user := o.Username
	var cert *x509.Certificate
	if g.certificates {
		state := c.GetTLSConnectionState()
		if len(state.PeerCertificates) == 0 {
			return g.refuse(from, "no certificate")
		}
		if err := g.revoked.Check(state.PeerCertificates); err != nil {
			return g.refuse(from, err.Error())
		}
		cert = state.PeerCertificates[0]
		user = cert.Subject.CommonName
	}
	if g.token != "" && !same(o.Password, g.token) {
		time.Sleep(guessPause)
		return g.refuse(from, "wrong token")
	}
	p, what := permissions(subjects.Names(g.run).PermissionOf(user)), "client"
	if g.workers {
		p, what = permissions(subjects.Names(g.run).WorkerPermission(user, o.Name)), "worker"
	}
	if p == nil || user == certs.WorkerUser && !g.workers {
		return g.refuse(from, fmt.Sprintf("%.60q is not a %s", user, what))
	}
	who := g.group(user)
	if g.isBanned(who) {
		time.Sleep(guessPause)
		if g.certificates { // otherwise the name proves nothing
			return g.refuse(from, fmt.Sprintf("%s sent more than it may", who))
		}
	}
	if err := g.frontend.admit(c.RemoteAddress(), who, cert, !g.certificates); err != nil {
		return g.refuse(from, err.Error())
	}
	c.RegisterUser(&server.User{Username: user, Permissions: p})
	return true
}

func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// refuse logs a refusal, at limited intervals, and sums up the others.
func (g *authenticator) refuse(from, why string) bool {
	g.mu.Lock()
	g.roll()
	g.refused++
	if len(g.from) < 1<<16 {
		g.from[from] = true
	}
	first := g.refused == 1
	g.mu.Unlock()
	if first {
		g.log.Warn("a connection is refused", "from", from, "reason", why)
	}
	return false
}

// roll starts a new count if the time of the last one is over.
func (g *authenticator) roll() {
	if time.Since(g.since) < summaryTime {
		return
	}
	if g.refused > 1 {
		g.log.Warn("more connections were refused", "count", g.refused-1, "addresses", len(g.from))
	}
	g.since, g.refused, g.from = time.Now(), 0, map[string]bool{}
}

// group returns the user that a user counts as.
func (g *authenticator) group(user string) string {
	var client int
	if n, err := fmt.Sscanf(user, "client-%d", &client); n == 1 && err == nil && g.clients > 0 && client >= g.clients {
		return subjects.UnknownClients
	}
	return user
}

// ban refuses a user for a while.
func (g *authenticator) ban(user string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().After(g.banned[user]) {
		g.log.Warn("a user sends more than it may", "user", user)
	}
	g.banned[user] = time.Now().Add(banTime)
}

func (g *authenticator) isBanned(user string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.banned[user])
}

// permissions returns a permission in the form of the embedded server.
func permissions(r *subjects.Permission) *server.Permissions {
	if r == nil {
		return nil
	}
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: r.Publish},
		Subscribe: &server.SubjectPermission{Allow: r.Subscribe}}
}
