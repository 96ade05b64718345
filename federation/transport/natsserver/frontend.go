package natsserver

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// frontend accepts connections for the NATS server, which does not limit unauthenticated connections. A frontend keeps
// a limited number of them. If that number is reached, a new connection replaces the oldest one from the address with
// the most connections. An address that opens many connections therefore evicts its own, and a client with a valid
// certificate or token can always connect. Each authenticated user has a limit of its own.
type frontend struct {
	listener        net.Listener
	unauthenticated int // the most unauthenticated connections
	each            int // the most connections of one user; 0 for no limit

	mu          sync.Mutex
	connections map[netip.AddrPort]*connection // by remote address
	count       int
}

// connection is a connection of a client.
type connection struct {
	net.Conn
	d      *frontend
	at     netip.AddrPort
	number int               // the order of arrival
	user   string            // empty until it is authenticated
	cert   *x509.Certificate // nil for none
}

// evictPause is how long the frontend accepts nothing after it evicted a connection. A connection therefore has at
// least unauthenticated x evictPause to authenticate.
const evictPause = time.Millisecond

// reserved is the number of files that a run opens besides connections: checkpoints, records, certificates, libraries.
const reserved = 80

// newFrontend listens. Its limits follow from the number of files that the process may open.
func newFrontend(e Options) (*frontend, error) {
	d := &frontend{unauthenticated: maxUnauthenticated, connections: map[netip.AddrPort]*connection{}}
	users := 0
	if !e.Workers {
		users, d.each = e.Clients+2, maxConnections // one is the status user, one UnknownClients
	}
	if most := mostConnections(); most > 0 {
		if need := users*minConnections + minUnauthenticated; most < need {
			return nil, fmt.Errorf("%d clients need %d connections, and the limit of open files leaves %d; raise it "+
				"to %d (ulimit -n)", e.Clients, need, most, need+reserved)
		}
		d.unauthenticated = min(maxUnauthenticated, max(minUnauthenticated, most/4))
		if users > 0 {
			d.each = min(maxConnections, max(minConnections, (most-d.unauthenticated)/users))
		}
	}
	var err error
	if d.listener, err = net.Listen("tcp", e.Listen); err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another address", e.Listen, err)
	}
	return d, nil
}

// open accepts connections until the listener is closed. inner opens a connection to the NATS server.
func (d *frontend) open(inner func() (net.Conn, error)) {
	for {
		c, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open, for example
			time.Sleep(10 * time.Millisecond)
			continue
		}
		g := &connection{Conn: c, d: d, at: plain(c.RemoteAddr())}
		d.mu.Lock()
		gone := d.evict("", d.unauthenticated)
		d.count++
		g.number = d.count
		d.connections[g.at] = g
		d.mu.Unlock()
		if gone != nil {
			gone.Close()
			time.Sleep(evictPause)
		}
		go g.relay(inner)
	}
}

// relay copies bytes in both directions, after a line of the PROXY protocol (version 1) that states the address.
func (g *connection) relay(inner func() (net.Conn, error)) {
	defer g.Close()
	c, err := inner()
	if err != nil {
		return
	}
	defer c.Close()
	go func() {
		io.Copy(g, c)
		g.Close()
	}()
	kind, to := "TCP4", plain(g.LocalAddr())
	if g.at.Addr().Is6() {
		kind = "TCP6"
	}
	fmt.Fprintf(c, "PROXY %s %s %s %d %d\r\n", kind, g.at.Addr(), to.Addr(), g.at.Port(), to.Port())
	io.Copy(c, g)
}

// plain returns an address as a key of frontend.connections.
func plain(a net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// Close closes the connection and removes it from the frontend.
func (g *connection) Close() error {
	g.d.mu.Lock()
	if g.d.connections[g.at] == g {
		delete(g.d.connections, g.at)
	}
	g.d.mu.Unlock()
	return g.Conn.Close()
}

// evict removes one of a user's connections if it has limit or more of them: the oldest one from the address with the
// most. It returns the removed connection, or nil. frontend.mu must be held.
func (d *frontend) evict(user string, limit int) (gone *connection) {
	from, all := map[netip.Addr]int{}, 0
	for _, g := range d.connections {
		if g.user == user {
			from[g.at.Addr()]++
			all++
		}
	}
	if all < limit || limit == 0 {
		return nil
	}
	for _, g := range d.connections {
		if g.user != user {
			continue
		}
		if n := from[g.at.Addr()]; gone == nil || n > from[gone.at.Addr()] ||
			n == from[gone.at.Addr()] && g.number < gone.number {
			gone = g
		}
	}
	delete(d.connections, gone.at)
	return gone
}

// admit assigns the connection from an address to a user. It refuses a connection beyond the user's limit. If several
// clients share the user's name, it evicts one of the user's connections instead.
func (d *frontend) admit(a net.Addr, user string, cert *x509.Certificate, shared bool) error {
	var gone *connection
	defer func() {
		if gone != nil {
			gone.Close()
		}
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.connections[plain(a)]
	if g == nil {
		return errors.New("it was closed")
	}
	if shared {
		gone = d.evict(user, d.each)
	} else if n := d.has(user); d.each > 0 && n >= d.each {
		return fmt.Errorf("%s has %d connections", user, n)
	}
	g.user, g.cert = user, cert
	return nil
}

// connectionAt returns the authenticated connection from an address, or nil.
func (d *frontend) connectionAt(ip string, port int) *connection {
	at, err := netip.ParseAddr(ip)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.connections[netip.AddrPortFrom(at.Unmap().WithZone(""), uint16(port))]; g != nil && g.user != "" {
		return g
	}
	return nil
}

// has returns the number of a user's connections. frontend.mu must be held.
func (d *frontend) has(user string) (n int) {
	for _, g := range d.connections {
		if g.user == user {
			n++
		}
	}
	return n
}

// cut closes the authenticated connections that which selects.
func (d *frontend) cut(which func(*connection) bool) {
	d.mu.Lock()
	var gone []*connection
	for _, g := range d.connections {
		if g.user != "" && which(g) {
			gone = append(gone, g)
		}
	}
	d.mu.Unlock()
	for _, g := range gone {
		g.Close()
	}
}
