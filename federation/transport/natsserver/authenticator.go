package natsserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/subjects"
)

// serverUser is the user of the run's own connection.
const serverUser = "promptfed-server"

// authenticator decides who may connect to an embedded NATS server and what they may do there.
type authenticator struct {
	run          string
	token        string
	certificates bool   // every client has one
	workers      bool   // workers may connect, and nobody else
	secret       string // of the run's own connection
	log          *slog.Logger
	connections  func(user string) int // that a user has
	revoked      *certs.RevocationList

	mu      sync.Mutex
	open    map[string]int       // connections of a user, or more: those that ended since count still
	banned  map[string]time.Time // users that are cut off, until when
	from    map[string]bool      // addresses of connections that were refused since the time below
	since   time.Time
	refused int // connections that nothing was said about yet
	// certificates of those that were let in, by the SHA-256 that the NATS server's list of connections has
	seen map[string]*x509.Certificate
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// What is tolerated.
const (
	summaryTime    = 10 * time.Second       // after which one line sums up what was refused
	guessPause     = 500 * time.Millisecond // before a wrong token is refused; the right one never waits
	maxConnections = 8                      // of one user; who comes back from a cut is there twice for a moment
	banTime        = 10 * time.Second
)

// Check lets a connection in with the permissions of its user: the one of its certificate, or else the one that it
// names.
func (g *authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if same(o.Username, serverUser) && same(o.Password, g.secret) {
		c.RegisterUser(&server.User{Username: serverUser})
		return true
	}
	from := address(c.RemoteAddress())
	user := o.Username
	if g.certificates {
		state := c.GetTLSConnectionState()
		if state == nil || len(state.PeerCertificates) == 0 {
			return g.refuse(from, "no certificate")
		}
		if err := g.revoked.Check(state.PeerCertificates); err != nil {
			return g.refuse(from, err.Error())
		}
		user = g.noteCertificate(state.PeerCertificates[0])
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
	if g.isBanned(user) {
		return g.refuse(from, fmt.Sprintf("%s sent more than it may", user))
	}
	if !g.workers && g.crowded(user) {
		return g.refuse(from, fmt.Sprintf("%s has %d connections", user, maxConnections))
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

// refuse says why, once in a while, and sums up the rest.
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

// roll begins a new count where the time of the last is over.
func (g *authenticator) roll() {
	if time.Since(g.since) < summaryTime {
		return
	}
	if g.refused > 1 {
		g.log.Warn("more connections were refused", "count", g.refused-1, "addresses", len(g.from))
	}
	g.since, g.refused, g.from = time.Now(), 0, map[string]bool{}
}

// noteCertificate notes a certificate that a connection has, and gives the user that it names.
func (g *authenticator) noteCertificate(c *x509.Certificate) string {
	sum := fmt.Sprintf("%x", sha256.Sum256(c.Raw))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[sum] = c
	return c.Subject.CommonName
}

// invalidUsers are the users that showed a certificate that counts no longer, with the SHA-256 of such certificates.
func (g *authenticator) invalidUsers() (users []string, sums map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sums = map[string]bool{}
	for sum, c := range g.seen {
		if g.revoked.Check([]*x509.Certificate{c}) != nil {
			users, sums[sum] = append(users, c.Subject.CommonName), true
		}
	}
	return users, sums
}

// ban keeps a user out for a while.
func (g *authenticator) ban(user string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.banned[user] = time.Now().Add(banTime)
}

func (g *authenticator) isBanned(user string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.banned[user])
}

// crowded tells whether a user has as many connections as it may, and counts one more otherwise. To ask the server how
// many there are costs as much as there are of all users, so that is done only for who came often.
func (g *authenticator) crowded(user string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[user] >= maxConnections {
		g.open[user] = g.connections(user)
	}
	if g.open[user] >= maxConnections {
		return true
	}
	g.open[user]++
	return false
}

// permissions are a right as the embedded server knows it.
func permissions(r *subjects.Permission) *server.Permissions {
	if r == nil {
		return nil
	}
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: r.Publish},
		Subscribe: &server.SubjectPermission{Allow: r.Subscribe}}
}
