package remote

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/protocol"
)

var _ message.Cohort = (*Server)(nil)

// collection is an instruction in progress and its replies.
type collection struct {
	instruction message.Instruction
	given       map[int]string        // identities of the instruction, by client
	got         map[int]message.Reply // by client
	failed      map[int]string        // reason, by client without an answer
	wake        chan struct{}         // something changed
	large       int                   // clients whose own tensors are too large

	once   sync.Once
	common encoded // tensors of all clients
	err    error
}

// waits reports whether a client has the instruction and did not answer it.
func (c *collection) waits(client int) bool {
	_, got := c.got[client]
	return c.given[client] != "" && !got && c.failed[client] == ""
}

// Participants returns the clients as they joined.
func (h *Server) Participants() []message.Participant {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]message.Participant, len(h.clients))
	for i, k := range h.clients {
		out[i] = k.Participant
		out[i].Silent = k.silent()
	}
	return out
}

// Traits says that nothing that clients say is trusted.
func (h *Server) Traits() message.Traits { return message.Traits{Claimed: true} }

// Accept makes the uploads of clients in this round count. The clients learn this from their next instruction.
func (h *Server) Accept(_ int, clients []int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range clients {
		if id, ok := h.trained[k]; ok {
			h.accepted[k] = id
		}
	}
	clear(h.trained)
	return nil
}

// checkpoint is a Server's part of a checkpoint.
type checkpoint struct {
	Run      string         `json:"run"`
	Accepted map[int]string `json:"accepted"`
	Seq      int64          `json:"seq"` // of the newest instruction
	Norms    norms          `json:"norms,omitempty"`
}

// layer is the name of a Server in a checkpoint.
const layer = "members"

// Save saves the accepted uploads of all clients.
func (h *Server) Save() (out message.Saved, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.safe = maps.Clone(h.accepted)
	err = out.Put(layer, checkpoint{h.set.ID, h.safe, h.seq, h.norms}, nil)
	return out, err
}

// Load restores the state of Save.
func (h *Server) Load(from message.Saved) error {
	var s checkpoint
	if _, err := from.Get(layer, &s); err != nil {
		return err
	}
	if s.Run != h.set.ID {
		return fmt.Errorf("the checkpoint belongs to run %.40q, this is run %q", s.Run, h.set.ID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accepted, h.safe, h.seq, h.norms = maps.Clone(s.Accepted), maps.Clone(s.Accepted), s.Seq, s.Norms
	if h.set.Privacy.Clients { // the run began without differential privacy
		h.norms = nil
	}
	if h.accepted == nil {
		h.accepted, h.safe = map[int]string{}, map[int]string{}
	}
	return nil
}

// QuorumSize returns how many of so many clients must answer an instruction: their share quorum, rounded up. With a
// quorum below 1, all but one are always enough: of three with a quorum of 0.8, two.
func QuorumSize(quorum float64, clients int) int {
	need := int(math.Ceil(quorum*float64(clients) - 1e-9))
	if quorum < 1 && clients > 1 {
		need = min(need, clients-1)
	}
	return max(need, min(1, clients))
}

// Run sends an instruction to clients and returns their replies. It waits until all awaited clients that are present
// have answered (see patience), or until the deadline is over and there is a quorum. A client that failed, or whose
// reply was refused, does not count as asked; with a quorum of 1 it ends the run. Without a quorum Run sends the
// instruction again to clients without an answer and waits for another deadline; earlier replies still count, since the
// same instruction has the same answer. Clients from which no answer is expected lower the quorum (see need), so that
// Run ends: with the replies that came, or with an error if hardly a client of the run may answer any more.
//
// If all clients failed, or none is expected to answer, there are no replies and no error. Then replies that are
// unlikely beside all the others are refused; see limits.
func (h *Server) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := h.collect(ctx, o, h.set.Quorum, 0)
	if err != nil {
		return nil, err
	}
	return h.applyLimits(o, replies)
}

// collect is Run with at most tries attempts, unless tries is 0.
func (h *Server) collect(ctx context.Context, o message.Instruction, quorum float64, tries int) ([]message.Reply,
	error) {
	c := &collection{instruction: o, given: map[int]string{}, got: map[int]message.Reply{}, failed: map[int]string{},
		wake: make(chan struct{}, 1)}
	h.mu.Lock()
	for _, k := range o.Clients {
		if why := h.clients[k].lapsed; why != "" {
			c.failed[k] = why
		}
	}
	h.current = c
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.release()
		h.mu.Unlock()
	}()
	for try := 1; ; try++ {
		late, err := h.attempt(ctx, c, quorum)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		n, need := len(c.got), h.need(c, quorum)
		expected, gone := h.missing(c)
		err = h.checkAlone(c)
		over := !late || n >= need || try == tries || len(expected) == 0 && !h.set.KeepQuorum
		if !over {
			h.totals.Repeats++
		}
		h.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if over {
			return h.replied(c), nil
		}
		h.set.Log.Warn("below the quorum; the instruction is sent again", "round", o.Round+1, "kind", o.Kind,
			"answered", n, "needed", need, "missing", slices.Concat(expected, gone), "try", try+1)
	}
}

// need returns how many of the clients that did not fail must answer; a quorum of 0 needs none. Clients that are not
// expected to answer do not count as asked, down to Settings.Least, unless the operator asked for the quorum.
func (h *Server) need(c *collection, quorum float64) int {
	if quorum == 0 {
		return 0
	}
	asked := len(c.instruction.Clients) - len(c.failed)
	if h.set.KeepQuorum {
		return QuorumSize(quorum, asked)
	}
	_, gone := h.missing(c)
	return max(QuorumSize(quorum, asked-len(gone)), h.least(c))
}

// least returns the smallest number of answers that an instruction can use.
func (h *Server) least(c *collection) int {
	if h.set.Least == 0 {
		return 0
	}
	return QuorumSize(h.set.Least, len(c.instruction.Clients)-len(c.failed))
}

// attempt sends the instruction to all clients without an answer and waits; late reports that the deadline is over.
func (h *Server) attempt(ctx context.Context, c *collection, quorum float64) (late bool, err error) {
	var over <-chan time.Time
	limit := h.set.Deadline
	if c.instruction.Kind == protocol.EndKind && (limit == 0 || limit > time.Minute) {
		limit = time.Minute
	}
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	for again := true; ; again = false {
		if err := h.sendAll(c, again); err != nil {
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

// done reports whether there is nobody to wait for. It returns an error if all must answer and one failed.
func (h *Server) done(c *collection, quorum float64) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if quorum == 1 && h.set.KeepQuorum && len(c.failed) > 0 {
		k := slices.Min(slices.Collect(maps.Keys(c.failed)))
		return false, fmt.Errorf("round %d: %d of %d clients did not answer, and --quorum 1 needs all: client %d: %s",
			c.instruction.Round+1, len(c.failed), len(c.instruction.Clients), k, c.failed[k])
	}
	for _, k := range c.instruction.Clients {
		_, answered := c.got[k]
		if m := h.clients[k]; !answered && c.failed[k] == "" && m.Participant.Joined && !m.left &&
			h.awaited(c, k) {
			return false, nil
		}
	}
	expected, _ := h.missing(c)
	return len(c.got) >= h.need(c, quorum) || len(expected) == 0 && !h.set.KeepQuorum, nil
}

// sendAll sends the instruction to the joined clients that do not have it, or with again to all without an answer.
func (h *Server) sendAll(c *collection, again bool) error {
	h.mu.Lock()
	var to []int
	for _, k := range c.instruction.Clients {
		_, answered := c.got[k]
		if !answered && c.failed[k] == "" && (again || c.given[k] == "") && h.clients[k].Participant.Joined {
			to = append(to, k)
		}
	}
	h.mu.Unlock()
	for _, k := range to {
		if err := h.send(c, k); err != nil {
			return err
		}
	}
	return nil
}

// changed makes the current collection and Wait check their state after a client came or left. A stream itself sends an
// instruction again that the client had before.
func (h *Server) changed() {
	h.mu.Lock()
	c := h.current
	h.mu.Unlock()
	if c != nil {
		notify(c.wake)
	}
	notify(h.joined)
}

// release ends all pending instructions. Server.mu must be held.
func (h *Server) release() {
	h.current = nil
	for k := range h.clients {
		h.clients[k].finish()
	}
}

// replied ends a collection and returns its replies.
func (h *Server) replied(c *collection) []message.Reply {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release()
	var out []message.Reply
	for _, k := range slices.Sorted(maps.Keys(c.got)) {
		out = append(out, c.got[k])
		if c.instruction.Kind == message.Train {
			h.trained[k] = c.given[k]
		}
	}
	return out
}
