package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
)

// card is a client's request to join with what the server computes from it once. A card never changes. Without classes
// it has no request, only the client's known key.
type card struct {
	wire.JoinRequest
	experiment string         // digest of what all clients must share, by experimentOf
	files      string         // what clients with the same backbone must share, by filesOf
	key        certs.Verifier // of its certificate
}

// hasRequest reports whether there is a client's request to join.
func (c *card) hasRequest() bool { return len(c.RunSpec.Classes) > 0 }

// member is a client of the run.
type member struct {
	*card
	joined    bool      // its request counts: until the start it may be asked, from then on it takes part
	lapsed    string    // why its certificate is not valid any more
	left      bool      // its user stopped it
	session   *session  // of its newest process; nil if there is none
	connected bool      // at the time of the roster
	seen      time.Time // when its last call ended
}

// counts reports whether others must agree with this client. The request of a client with an invalid certificate is
// forgotten.
func (m *member) counts() bool { return m.joined && m.lapsed == "" }

// roster is all clients and their agreement at one moment.
type roster struct {
	version int // number of changes of what others are judged by, since the server started
	clients []member
	began   bool         // the clients agreed on terms
	terms   spec.RunSpec // before that, the terms of the configuration
}

// members holds who joined with what. Its lock is held to copy and compare, never to compute.
type members struct {
	changed chan struct{} // a client joined, waits or left

	mu  sync.Mutex
	now roster
}

func newMembers(clients int, terms spec.RunSpec) *members {
	m := &members{changed: make(chan struct{}, 1), now: roster{clients: make([]member, clients), terms: terms}}
	for k := range m.now.clients {
		m.now.clients[k].card = &card{}
	}
	return m
}

// roster returns the state of this moment.
func (m *members) roster() roster {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.now
	r.clients = slices.Clone(r.clients)
	for k := range r.clients {
		r.clients[k].connected = r.clients[k].session.connected()
	}

	return r
}

// client returns the state of a client.
func (m *members) client(client int) member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.clients[client]
}

// admit makes a request to join count, unless the roster has changed since it was judged by. The process is connected
// until exit. The request of a client that waits counts until the run begins, and its process has no session.
func (m *members) admit(over context.Context, version, client int, c *card, instance string,
	waits bool) (fresh *session, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version != m.now.version {
		return nil, false
	}

	m.now.version++
	one := &m.now.clients[client]
	one.card, one.joined, one.lapsed = c, !waits || !m.now.began, ""
	if waits {
		return nil, true
	}

	one.session.end(errors.New("the client joined again"))
	fresh = &session{instance: instance, calls: 1}
	fresh.ctx, fresh.cancel = context.WithCancelCause(over)
	one.session, one.left = fresh, false
	return fresh, true
}

// change changes the state of a client. Only what others are judged by makes a new version.
func (m *members) change(client int, do func(m *member)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := &m.now.clients[client]
	before := *one
	if do(one); one.card != before.card || one.joined != before.joined || one.lapsed != before.lapsed {
		m.now.version++
	}
}

// agree sets the terms on which clients agreed, unless the roster has changed. Clients that are left out must join
// again, as others that wait do.
func (m *members) agree(version int, terms spec.RunSpec, leftOut, wait []int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version != m.now.version {
		return false
	}

	m.now.version++
	m.now.began, m.now.terms = true, terms
	for _, k := range leftOut {
		m.now.clients[k].forget()
	}

	for _, k := range wait {
		m.now.clients[k].askAgain()
	}

	return true
}

// forget forgets a client's request, but not its known key.
func (m *member) forget() {
	m.card = &card{JoinRequest: wire.JoinRequest{Proof: m.Proof}}
	m.askAgain()
}

func (m *member) askAgain() {
	m.joined = false
	m.session.end(errors.New("join again"))
}

// session is a client's process, from its admission on. The lock of members guards calls, ended and newest.
type session struct {
	instance string
	ctx      context.Context // of its calls
	cancel   context.CancelCauseFunc
	calls    int                            // that are open
	ended    time.Time                      // the last one; zero if a connection was lost with it
	newest   [kinds]context.CancelCauseFunc // of the newest call of each kind; nil before the first
}

// callPause is how long a process counts as connected after a call, unless the call ended with the connection.
const callPause = 5 * time.Second

// connected reports whether the process runs, as far as the server knows.
func (s *session) connected() bool {
	return s != nil && s.ctx.Err() == nil && (s.calls > 0 || time.Since(s.ended) < callPause)
}

func (s *session) end(why error) {
	if s != nil {
		s.cancel(connect.NewError(connect.CodeAborted, why))
	}
}

// kind is a kind of call of which each process has one at a time.
type kind int

const (
	asking kind = iota
	answering
	kinds
)

// enter begins a call of a client's process, which ends the last call of the same kind.
func (m *members) enter(client int, instance string, what kind, cancel context.CancelCauseFunc) (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	session := m.now.clients[client].session
	if session == nil || session.instance != instance || session.ctx.Err() != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("this process has not joined"))
	}

	if last := session.newest[what]; last != nil {
		last(connect.NewError(connect.CodeAborted, errors.New("another call came in its place")))
	}

	session.newest[what] = cancel
	session.calls++
	return session, nil
}

// exit ends a call. A call that ends with its connection ends the presence of the process.
func (m *members) exit(client int, s *session, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.calls--
	if s.ended = time.Now(); lost {
		s.ended = time.Time{}
	}

	if one := &m.now.clients[client]; one.session == s {
		one.seen = time.Now()
	}
}
