package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"promptfed/federation/net/certs"
)

// Conn is a connection of a client.
type Conn struct {
	net.Conn
	listener *Listener
	from     netip.Addr
	number   int        // the order of arrival
	peer     certs.Peer // after the handshake
	user     string     // empty until it is authenticated

	closed    context.Context
	close     context.CancelFunc
	allowance atomic.Pointer[allowance] // its own, and after the handshake that of its key
	waited    time.Duration             // for its allowance
	begun     bool                      // its handshake got its turn
}

// unknownClients is the user of all clients whose number the run does not have.
const unknownClients = "unknown clients"

// Peer returns who is on the other side.
func (c *Conn) Peer() certs.Peer { return c.peer }

// handshake authenticates the connection and hands it to Accept.
func (c *Conn) handshake() {
	conn := tls.Server(c, c.listener.conf.Load())
	err := conn.Handshake()
	var peer certs.Peer
	if err == nil {
		peer, err = c.listener.options.Identity.PeerOf(conn.ConnectionState())
	}

	if err != nil {
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) { // not evicted, nor closed by the client
			c.Refuse(err)
		}
		c.reject()
		return
	}

	c.listener.mu.Lock()
	c.peer = peer
	c.allowance.Store(c.listener.allowanceOf(c))
	c.listener.mu.Unlock()
	if !c.listener.options.Deferred && c.Admit() != nil {
		c.reject()
		return
	}

	select {
	case c.listener.ready <- conn:
	case <-c.listener.stopped.Done():
		c.Close()
	}
}

// awaitTurn waits until the first bytes of a handshake may cost processor time. At most l.unauthenticated connections
// wait, in the order of their first bytes, so none waits longer than two seconds.
func (c *Conn) awaitTurn() error {
	c.begun = true
	select {
	case <-c.listener.turns:
		return nil
	case <-c.closed.Done():
		return net.ErrClosed
	}
}

// reject closes a connection after it has read what the client sends, for at most a second. Otherwise the kernel would
// reset the connection, and a client that writes would not see the alert, which states why it is refused.
func (c *Conn) reject() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	c.SetReadDeadline(time.Now().Add(time.Second))
	io.Copy(io.Discard, io.LimitReader(c, 64<<10))
	c.Close()
}

// Admit makes the connection an authenticated one of its user; it may be called again. A user beyond its limit is
// refused. Without an authority several clients may use one name: one of the user's connections is evicted instead.
func (c *Conn) Admit() (err error) {
	user := c.peer.Name
	if k, ok := certs.ClientOf(user); ok && k >= c.listener.options.Clients {
		user = unknownClients
	}

	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch {
	case c.user != "":
		return nil
	case !c.listener.connections[c]:
		err = errors.New("it was closed")
	case !c.listener.options.Identity.Certified():
		c.listener.evict(user, c.listener.each)
	case len(c.listener.of(user)) >= c.listener.each:
		err = fmt.Errorf("%s has %d connections", user, c.listener.each)
	}

	if err != nil {
		c.listener.refuse(c.from, err)
		return err
	}

	c.user = user
	return nil
}

// expire closes the connection if it is not authenticated.
func (c *Conn) expire() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.listener.connections[c] && c.user == "" {
		c.listener.refuse(c.from, fmt.Errorf("it did not authenticate within %s", handshakeTime))
		c.remove()
	}
}

// Refuse logs why the connection is refused. The caller answers; an unauthenticated connection is closed in time.
func (c *Conn) Refuse(why error) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.refuse(c.from, why)
}

// Close closes the connection at once, without a TLS alert.
func (c *Conn) Close() error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.remove()
}

// remove closes the connection and removes it from the listener. Listener.mu must be held.
func (c *Conn) remove() error {
	delete(c.listener.connections, c)
	c.close()
	return c.Conn.Close()
}
