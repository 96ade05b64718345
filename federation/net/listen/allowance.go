package listen

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"promptfed/federation/net/wait"
)

// allowance limits the bytes of a user that belong to no message: frames without data, such as pings, settings and
// calls that are refused, which cost the server much more than the bytes of a message. An honest user needs a few bytes
// for each kilobyte of its messages and of its answers. A user beyond its allowance is read more slowly, and a
// connection that waits too long is closed.
type allowance struct {
	mu   sync.Mutex
	left int // bytes; below 0 for a user that must wait
	at   time.Time
}

const (
	overheadRate  = 64 << 10  // bytes a second
	overheadBurst = 512 << 10 // more than a stream's window, whose bytes become messages later
	overheadPause = 10 * time.Millisecond
	overheadTime  = 2 * time.Second
)

var errOverhead = errors.New("it sends too much that belongs to no message")

func newAllowance() *allowance { return &allowance{left: overheadBurst, at: time.Now()} }

// spend subtracts bytes that arrived and returns what is left. n below 0 gives bytes back.
func (a *allowance) spend(n int) (left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := int(time.Since(a.at).Seconds() * overheadRate); n > 0 { // what the user may send since the last call
		a.left, a.at = min(a.left+n, overheadBurst), time.Now()
	}
	a.left = min(a.left-n, overheadBurst)
	return a.left
}

// waitForAllowance waits until some of the user's allowance is left. It returns an error if the connection is closed,
// or if it has waited overheadTime in all since a read that did not have to wait.
func (c *Conn) waitForAllowance() error {
	a := c.allowance.Load()
	if a.spend(0) > 0 {
		c.waited = 0
		return nil
	}

	for ; a.spend(0) <= 0; c.waited += overheadPause {
		if c.waited > overheadTime {
			c.Refuse(fmt.Errorf("%.60q: %w", c.peer.Name, errOverhead))
			c.Close()
			return errOverhead
		}
		if wait.For(c.closed, overheadPause) != nil {
			return net.ErrClosed
		}
	}

	return nil
}

// Read reads from the connection within the user's allowance.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.waitForAllowance(); err != nil {
		return 0, err
	}

	n, err := c.Conn.Read(b)
	c.allowance.Load().spend(n)
	if err == nil && !c.begun {
		err = c.awaitTurn()
	}

	return n, err
}

// Write writes to the connection. The user acknowledges what it gets by small frames, so it may send a little more.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.allowance.Load().spend(-n / 64)
	return n, err
}

// Received reports that n bytes of the connection were read as messages, and with them their frames.
func (c *Conn) Received(n int) { c.allowance.Load().spend(-n - n/256) }

// allowanceOf returns the allowance of a connection's key. Listener.mu must be held.
func (l *Listener) allowanceOf(c *Conn) *allowance {
	key := string(c.peer.Proof.Key)
	if l.allowances[key] == nil {
		l.allowances[key] = newAllowance()
	}
	return l.allowances[key]
}

// forget removes the allowances of users that are not connected and have all of theirs. Listener.mu must be held.
func (l *Listener) forget() {
	used := map[string]bool{}
	for c := range l.connections {
		used[string(c.peer.Proof.Key)] = true
	}

	for key, a := range l.allowances {
		if a.spend(0) == overheadBurst && !used[key] {
			delete(l.allowances, key)
		}
	}
}
