package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wait"
)

// Options configures a Listener.
type Options struct {
	Address  string // HOST:PORT; port 0 for any free port
	Identity certs.Identity
	Clients  int  // of the run
	Deferred bool // a connection is unauthenticated until Conn.Admit is called, not only until its handshake
	Log      *slog.Logger
}

// Listener accepts the connections of a run's clients. It keeps a limited number of unauthenticated connections. If
// that number is reached, a new connection replaces the oldest one from the address with the most connections. An
// address that opens many connections therefore evicts its own, and a client with a valid certificate can always
// connect. Each user has a limit of its own.
type Listener struct {
	net.Listener
	options         Options
	unauthenticated int // the most unauthenticated connections
	each            int // the most connections of one user
	conf            atomic.Pointer[tls.Config]
	ready           chan *tls.Conn // connections after their handshake
	turns           chan struct{}  // permits of one handshake each
	stopped         context.Context
	stop            context.CancelFunc

	mu          sync.Mutex
	connections map[*Conn]bool
	allowances  map[string]*allowance // by key
	count       int                   // of all connections so far
	refused     int                   // refused connections that are not logged yet
	addresses   map[netip.Addr]bool   // of refused connections since the time below
	since       time.Time
}

// Limits.
const (
	summaryTime        = 10 * time.Second       // between two summaries of refused connections
	handshakeTime      = 5 * time.Second        // for a connection to authenticate
	watchTime          = 250 * time.Millisecond // between two checks of all certificates
	maxConnections     = 8                      // of one user; a reconnecting user has two for a moment
	minConnections     = 2                      // likewise, if the process may open few files
	minUnauthenticated = 32                     // unauthenticated connections
	maxUnauthenticated = 256
	handshakeBurst     = 256 // handshakes at once, in a run of few clients
	handshakesPerWatch = 50  // and on average: 200 a second
	reserved           = 80  // files that a run opens besides connections: checkpoints, records, certificates, ...
)

// evictPause is how long the listener accepts nothing after it evicted a connection. A connection therefore has at
// least unauthenticated x evictPause to authenticate.
const evictPause = time.Millisecond

// limits returns the most unauthenticated connections and the most connections of one user. They follow from most, the
// number of connections that the limit of open files leaves; 0 for no limit.
func limits(clients, most int) (unauthenticated, each int, err error) {
	if most == 0 {
		return maxUnauthenticated, maxConnections, nil
	}

	users := clients + 2 // one is the status user, one unknownClients
	if need := users*minConnections + minUnauthenticated; most < need {
		return 0, 0, fmt.Errorf("%d clients need %d connections, and the limit of open files leaves %d; raise it "+
			"to %d (ulimit -n)", clients, need, most, need+reserved)
	}

	unauthenticated = min(maxUnauthenticated, max(minUnauthenticated, most/4))
	return unauthenticated, min(maxConnections, max(minConnections, (most-unauthenticated)/users)), nil
}

// Beside returns the most connections of another server of the process. If open files are limited, they are an eighth
// of what the limit leaves, and at most half of the reserved files.
func Beside() int {
	if most := mostConnections(); most > 0 {
		return min(reserved/2, max(1, most/8))
	}
	return maxUnauthenticated
}

// Open listens.
func Open(e Options) (*Listener, error) {
	l, err := newListener(e)
	if err != nil {
		return nil, err
	}

	if l.Listener, err = net.Listen("tcp", e.Address); err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w; give another HOST:PORT, such as :8443", e.Address, err)
	}

	l.start()
	return l, nil
}

// newListener returns a Listener that accepts nothing yet.
func newListener(options Options) (*Listener, error) {
	burst := max(handshakeBurst, minConnections*options.Clients) // all clients connect at the start
	l := &Listener{options: options, ready: make(chan *tls.Conn), turns: make(chan struct{}, burst),
		connections: map[*Conn]bool{}, allowances: map[string]*allowance{}}
	l.giveTurns(burst)
	conf, err := options.Identity.ServerTLS()
	if err != nil {
		return nil, err
	}

	l.conf.Store(conf)
	l.unauthenticated, l.each, err = limits(options.Clients, mostConnections())
	return l, err
}

// start begins to accept connections of the inner listener.
func (l *Listener) start() {
	l.stopped, l.stop = context.WithCancel(context.Background())
	go l.serve()
	go l.watch()
}

// Renew replaces the server's certificate for new connections. The authority and its list of revoked certificates stay.
func (l *Listener) Renew(i certs.Identity) error {
	i, err := l.options.Identity.Renew(i)
	if err != nil {
		return err
	}

	conf, err := i.ServerTLS()
	if err == nil {
		l.conf.Store(conf)
	}

	return err
}

// Accept returns the next connection after its handshake: a *tls.Conn, whose NetConn is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.stopped.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and the connections that are not authenticated yet.
func (l *Listener) Close() error {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.of("") {
		c.remove()
	}
	return l.Listener.Close()
}

// serve accepts connections until the listener is closed.
func (l *Listener) serve() {
	for {
		accepted, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		if err != nil { // too many files are open, for example
			time.Sleep(10 * time.Millisecond)
			continue
		}

		at, _ := accepted.RemoteAddr().(*net.TCPAddr)
		conn := &Conn{Conn: accepted, listener: l, from: at.AddrPort().Addr().Unmap().WithZone("")}
		conn.closed, conn.close = context.WithCancel(context.Background())
		conn.allowance.Store(newAllowance())
		l.mu.Lock()
		evicted := l.evict("", l.unauthenticated)
		l.count++
		conn.number = l.count
		l.connections[conn] = true
		l.mu.Unlock()
		if evicted {
			time.Sleep(evictPause)
		}

		time.AfterFunc(handshakeTime, conn.expire)
		go conn.handshake()
	}
}

// of returns the connections of a user. Listener.mu must be held.
func (l *Listener) of(user string) (out []*Conn) {
	for c := range l.connections {
		if c.user == user {
			out = append(out, c)
		}
	}
	return out
}

// evict closes one of a user's connections if it has limit or more of them: the oldest one from the address with the
// most. Listener.mu must be held.
func (l *Listener) evict(user string, limit int) bool {
	list, from := l.of(user), map[netip.Addr]int{}
	if len(list) < limit {
		return false
	}

	for _, c := range list {
		from[c.from]++
	}

	slices.MinFunc(list, func(a, b *Conn) int {
		return cmp.Or(from[b.from]-from[a.from], a.number-b.number)
	}).remove()
	return true
}

// giveTurns permits n more handshakes, of which turns saves a limited number.
func (l *Listener) giveTurns(n int) {
	for range n {
		select {
		case l.turns <- struct{}{}:
		default:
			return
		}
	}
}

// watch closes the connections of revoked and expired certificates, which TLS does not check again, and permits
// handshakes.
func (l *Listener) watch() {
	for wait.For(l.stopped, watchTime) == nil {
		l.giveTurns(handshakesPerWatch)
		if err := l.options.Identity.Revoked.Refresh(); err != nil {
			l.options.Log.Error("cannot read", "error", err)
		}
		l.mu.Lock()
		for c := range l.connections {
			if err := c.peer.Verifier.Valid(); err != nil {
				l.refuse(c.from, err)
				c.remove()
			}
		}
		l.summarize()
		l.forget()
		l.mu.Unlock()
	}
}

// refuse logs the first refusal of each summaryTime, and counts the others. Listener.mu must be held.
func (l *Listener) refuse(from netip.Addr, why error) {
	l.summarize()
	if l.refused++; l.refused == 1 {
		l.since, l.addresses = time.Now(), map[netip.Addr]bool{}
		l.options.Log.Warn("a connection is refused", "from", from, "reason", why)
	}

	if len(l.addresses) < 1<<16 {
		l.addresses[from] = true
	}
}

// summarize logs the refusals since the last summary. Listener.mu must be held.
func (l *Listener) summarize() {
	if time.Since(l.since) < summaryTime {
		return
	}
	if l.refused > 1 {
		l.options.Log.Warn("more connections were refused", "count", l.refused-1, "addresses", len(l.addresses))
	}
	l.refused = 0
}

// URL returns the address for clients, valid on other machines if the listener listens on all addresses.
func (l *Listener) URL() string {
	return "https://" + net.JoinHostPort(certs.HostOf(l.options.Address, l.conf.Load().Certificates[0].Leaf),
		strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}
