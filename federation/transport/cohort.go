package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
)

var _ message.Remote = (*Server)(nil)

// collection is an order on its way and what came back.
type collection struct {
	order  message.Instruction
	given  map[int]string        // identities of the order as clients were given it
	got    map[int]message.Reply // by client
	failed map[int]string        // why a client has no answer
	wake   chan struct{}         // something changed
	again  map[int]bool          // clients that are to be given the order

	once   sync.Once
	common protocol.Content // what all clients get
	err    error
}

// waits tells whether a client has the order and did not answer it.
func (c *collection) waits(client int) bool {
	_, got := c.got[client]
	return c.given[client] != "" && !got && c.failed[client] == ""
}

// Participants are the clients as they joined.
func (h *Server) Participants() []message.Participant {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	out := make([]message.Participant, len(h.clients))
	for i, k := range h.clients {
		out[i] = k.Participant
	}
	return out
}

// Accept makes what clients uploaded in this round count. They learn it with their next order.
func (h *Server) Accept(_ int, clients []int) error {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for _, k := range clients {
		if id, ok := h.trained[k]; ok {
			h.accepted[k] = id
		}
	}
	clear(h.trained)
	return nil
}

// checkpoint is what a checkpoint of the run holds of a Server.
type checkpoint struct {
	Run      string         `json:"run"`
	Accepted map[int]string `json:"accepted"`
	Seq      int64          `json:"seq"` // of the newest order
	Norms    norms          `json:"norms,omitempty"`
}

// Save gives what counts of each client.
func (h *Server) Save() ([]byte, error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.safe = maps.Clone(h.accepted)
	return json.Marshal(checkpoint{h.set.ID, h.safe, h.Seq, h.norms})
}

// Load takes over what Save gave.
func (h *Server) Load(b []byte) error {
	var s checkpoint
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("the checkpoint was not written by promptfed serve: %w", err)
	}
	if s.Run != h.set.ID {
		return fmt.Errorf("the checkpoint belongs to run %.40q, this is run %q", s.Run, h.set.ID)
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.accepted, h.safe, h.Seq, h.norms = maps.Clone(s.Accepted), maps.Clone(s.Accepted), s.Seq, s.Norms
	if h.set.Privacy.Clients { // of an older server of this run
		h.norms = nil
	}
	if h.accepted == nil {
		h.accepted, h.safe = map[int]string{}, map[int]string{}
	}
	return nil
}

// QuorumSize is how many of so many clients must answer an order: the quorum, a share of them, rounded up, but below a
// quorum of 1 one less than all is always enough. So of three with a quorum of 0.8 two must answer, and no single
// client can hold a run.
func QuorumSize(quorum float64, clients int) int {
	need := int(math.Ceil(quorum*float64(clients) - 1e-9))
	if quorum < 1 && clients > 1 {
		need = min(need, clients-1)
	}
	return max(need, min(1, clients))
}

// Run gives an order to clients and waits for their replies: until all have answered that are there and awaited (see
// patience), or the deadline is over and a quorum has. Clients that failed, or whose reply was refused, are not counted
// among those asked; only where the quorum is 1 the run ends with them. Below the quorum it gives the order again to
// those that have not answered, and waits as long again; what came in before still counts, since the same order has the
// same answer.
//
// Where all that were asked failed there are no replies, and no error. Replies that go beyond what all of them together
// make likely are refused after that; see limits.
func (h *Server) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := h.collect(ctx, o, h.set.Quorum, 0)
	if err != nil {
		return nil, err
	}
	return h.applyLimits(o, replies)
}

// collect is Run; tries, unless 0, bounds how often the order is given.
func (h *Server) collect(ctx context.Context, o message.Instruction, quorum float64, tries int) ([]message.Reply,
	error) {
	c := &collection{order: o, given: map[int]string{}, got: map[int]message.Reply{}, failed: map[int]string{},
		again: map[int]bool{}, wake: make(chan struct{}, 1)}
	h.Mu.Lock()
	for _, k := range o.Clients {
		if why := h.clients[k].Lapsed; why != "" {
			c.failed[k] = why
		}
	}
	h.current = c
	h.Mu.Unlock()
	defer func() {
		h.Mu.Lock()
		h.release()
		h.Mu.Unlock()
		h.Outbox.Clear()
	}()
	for try := 1; ; try++ {
		late, err := h.attempt(ctx, c, quorum)
		if err != nil {
			return nil, err
		}
		h.Mu.Lock()
		n, need := len(c.got), h.need(c, quorum)
		h.Mu.Unlock()
		if !late || n >= need || try == tries {
			return h.replied(c), nil
		}
		h.Counters.Repeats.Add(1)
		h.set.Log.Warn("below the quorum; the instruction is sent again", "round", o.Round+1, "kind", o.Kind,
			"answered", n, "needed", need, "try", try+1)
	}
}

// need is how many must answer of those that did not fail; a quorum of 0 is for an order that nobody must answer.
func (h *Server) need(c *collection, quorum float64) int {
	if quorum == 0 {
		return 0
	}
	return QuorumSize(quorum, len(c.order.Clients)-len(c.failed))
}

// attempt gives the order to all that have not answered and waits; late tells that the deadline is over.
func (h *Server) attempt(ctx context.Context, c *collection, quorum float64) (late bool, err error) {
	h.Mu.Lock()
	for _, k := range c.order.Clients {
		if _, ok := c.got[k]; !ok && c.failed[k] == "" {
			c.again[k] = true
		}
	}
	h.Mu.Unlock()
	var over <-chan time.Time
	limit := h.set.Deadline
	if c.order.Kind == protocol.EndKind && (limit == 0 || limit > time.Minute) {
		limit = time.Minute
	}
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	for {
		if err := h.sendAll(ctx, c); err != nil {
			return false, err
		}
		if done, err := h.done(c, quorum); done || err != nil {
			return false, err
		}
		select {
		case <-c.wake:
		case <-over:
			h.deadlinePassed(c)
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// done tells whether nobody is left to wait for; an error means that all must answer and one failed.
func (h *Server) done(c *collection, quorum float64) (bool, error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if quorum == 1 && len(c.failed) > 0 {
		k := slices.Min(slices.Collect(maps.Keys(c.failed)))
		return false, fmt.Errorf("round %d: %d of %d clients did not answer, and --quorum 1 needs all: client %d: %s",
			c.order.Round+1, len(c.failed), len(c.order.Clients), k, c.failed[k])
	}
	for _, k := range c.order.Clients {
		_, answered := c.got[k]
		if m := h.clients[k]; !answered && c.failed[k] == "" && m.Participant.Joined && !m.Left &&
			h.awaited(c, k) {
			return false, nil
		}
	}
	return len(c.got) >= h.need(c, quorum) && len(c.again) == 0, nil
}

// sendAll sends the order to all who are to be given it and have joined.
func (h *Server) sendAll(ctx context.Context, c *collection) error {
	h.Mu.Lock()
	var to []int
	for _, k := range slices.Sorted(maps.Keys(c.again)) {
		if h.clients[k].Participant.Joined {
			to = append(to, k)
		}
	}
	clear(c.again)
	h.Mu.Unlock()
	var eg errgroup.Group
	eg.SetLimit(8)
	for _, k := range to {
		eg.Go(func() error {
			err := h.send(c, k)
			if err == nil || ctx.Err() != nil || !exchange.IsUnavailable(err) {
				return err
			}
			h.set.Log.Warn("an instruction could not be sent; trying again", "client", k, "error", err)
			time.AfterFunc(time.Second, func() {
				h.Mu.Lock()
				c.again[k] = true
				h.Mu.Unlock()
				exchange.Notify(c.wake)
			})
			return nil
		})
	}
	return eg.Wait()
}

// PresenceChanged hears that a client leaves, or that it is back. Its heartbeats show whether it has its order.
func (h *Server) PresenceChanged(d *exchange.Session, _ bool) { h.wake(d.Number, false) }

// wake makes the collection that is under way look again, and gives a client its order that came, or came anew.
func (h *Server) wake(client int, came bool) {
	h.Mu.Lock()
	c := h.current
	if c != nil && slices.Contains(c.order.Clients, client) && (c.given[client] == "" || came && c.waits(client)) {
		c.again[client] = true
	}
	h.Mu.Unlock()
	if c != nil {
		exchange.Notify(c.wake)
	}
	exchange.Notify(h.joined)
}

// release makes no client have an order. Host.Mu must be held.
func (h *Server) release() {
	h.current = nil
	for _, d := range h.sessions {
		d.End(d.Pending)
	}
}

// replied closes a collection.
func (h *Server) replied(c *collection) []message.Reply {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.release()
	var out []message.Reply
	for _, k := range slices.Sorted(maps.Keys(c.got)) {
		out = append(out, c.got[k])
		if c.order.Kind == message.Train {
			h.trained[k] = c.given[k]
		}
	}
	return out
}
