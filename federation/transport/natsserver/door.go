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

// door takes connections for the NATS server, which has no limit of its own for those that did not show who they are.
// There is room for some of these; where it is full, a new one takes the place of the oldest from the address that has
// the most of them. So whoever opens many drives out itself, and nobody who has the right certificate or token is kept
// out. Connections of one user have room of their own.
type door struct {
	listener net.Listener
	unknown  int // connections of nobody yet, at most
	each     int // connections of one user, at most; 0 for any number

	mu    sync.Mutex
	inner map[netip.AddrPort]*guest // by remote address
	count int
}

// guest is a connection.
type guest struct {
	net.Conn
	d      *door
	at     netip.AddrPort
	number int               // the later, the larger
	user   string            // empty until it showed who it is
	cert   *x509.Certificate // nil for none
}

// crowdPause is how long no other connection is taken where one had to go. So a connection has as many of these pauses
// to show who it is, at least, as there are places.
const crowdPause = time.Millisecond

// reserved is how many files a run opens beside connections: checkpoints, records, certificates, libraries.
const reserved = 80

// newDoor listens, with room for what connections the process may open.
func newDoor(e Options) (*door, error) {
	d := &door{unknown: maxUnknown, inner: map[netip.AddrPort]*guest{}}
	users := 0
	if !e.Workers {
		users, d.each = e.Clients+2, maxConnections // one has the status, and one is all strangers
	}
	if most := mostConnections(); most > 0 {
		if need := users*minConnections + minUnknown; most < need {
			return nil, fmt.Errorf("%d clients need %d connections, and the limit of open files leaves %d; raise it "+
				"to %d (ulimit -n)", e.Clients, need, most, need+reserved)
		}
		d.unknown = min(maxUnknown, max(minUnknown, most/4))
		if users > 0 {
			d.each = min(maxConnections, max(minConnections, (most-d.unknown)/users))
		}
	}
	var err error
	if d.listener, err = net.Listen("tcp", e.Listen); err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another address", e.Listen, err)
	}
	return d, nil
}

// open takes connections until the listener is closed. inner makes one to the NATS server.
func (d *door) open(inner func() (net.Conn, error)) {
	for {
		c, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open, for example
			time.Sleep(10 * time.Millisecond)
			continue
		}
		g := &guest{Conn: c, d: d, at: plain(c.RemoteAddr())}
		d.mu.Lock()
		gone := d.makeRoom("", d.unknown)
		d.count++
		g.number = d.count
		d.inner[g.at] = g
		d.mu.Unlock()
		if gone != nil {
			gone.Close()
			time.Sleep(crowdPause)
		}
		go g.relay(inner)
	}
}

// relay carries what both sides say, after a line of the PROXY protocol (version 1) with the address.
func (g *guest) relay(inner func() (net.Conn, error)) {
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

// plain is an address as key.
func plain(a net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// Close makes room.
func (g *guest) Close() error {
	g.d.mu.Lock()
	if g.d.inner[g.at] == g {
		delete(g.d.inner, g.at)
	}
	g.d.mu.Unlock()
	return g.Conn.Close()
}

// makeRoom gives the connection of a user that is to go where there are as many as may be: the oldest from the address
// that has the most of them. door.mu must be held.
func (d *door) makeRoom(user string, most int) (gone *guest) {
	from, all := map[netip.Addr]int{}, 0
	for _, g := range d.inner {
		if g.user == user {
			from[g.at.Addr()]++
			all++
		}
	}
	if all < most || most == 0 {
		return nil
	}
	for _, g := range d.inner {
		if g.user != user {
			continue
		}
		if n := from[g.at.Addr()]; gone == nil || n > from[gone.at.Addr()] ||
			n == from[gone.at.Addr()] && g.number < gone.number {
			gone = g
		}
	}
	delete(d.inner, gone.at)
	return gone
}

// admit gives the connection from an address to a user. A user that has as many as it may gets no other, unless others
// may have its name as well: then one of them goes.
func (d *door) admit(a net.Addr, user string, cert *x509.Certificate, shared bool) error {
	var gone *guest
	defer func() {
		if gone != nil {
			gone.Close()
		}
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.inner[plain(a)]
	if g == nil {
		return errors.New("it was closed")
	}
	if shared {
		gone = d.makeRoom(user, d.each)
	} else if n := d.has(user); d.each > 0 && n >= d.each {
		return fmt.Errorf("%s has %d connections", user, n)
	}
	g.user, g.cert = user, cert
	return nil
}

// guestAt is the guest with an address that showed who it is; nil for none.
func (d *door) guestAt(ip string, port int) *guest {
	at, err := netip.ParseAddr(ip)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.inner[netip.AddrPortFrom(at.Unmap().WithZone(""), uint16(port))]; g != nil && g.user != "" {
		return g
	}
	return nil
}

// has counts the connections of a user. door.mu must be held.
func (d *door) has(user string) (n int) {
	for _, g := range d.inner {
		if g.user == user {
			n++
		}
	}
	return n
}

// cut ends connections.
func (d *door) cut(which func(*guest) bool) {
	d.mu.Lock()
	var gone []*guest
	for _, g := range d.inner {
		if g.user != "" && which(g) {
			gone = append(gone, g)
		}
	}
	d.mu.Unlock()
	for _, g := range gone {
		g.Close()
	}
}
