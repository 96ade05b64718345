package server

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
)

var _ message.Cohort = (*Server)(nil)

// Participants returns the clients as they joined.
func (h *Server) Participants() []message.Participant {
	r := h.members.roster()
	out := make([]message.Participant, len(r.clients))
	for k, m := range r.clients {
		out[k] = m.Participant
		out[k].Joined, out[k].Silent = m.joined, h.counts.tally(k).silent()
	}
	return out
}

// Traits says that nothing that clients say is trusted.
func (h *Server) Traits() message.Traits { return message.Traits{Claimed: true} }

// Accept makes the uploads of clients in this round count. The clients learn this from their next instruction.
func (h *Server) Accept(_ int, clients []int) error {
	h.mail.accept(clients)
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
	accepted, seq := h.mail.save()
	err = out.Put(layer, checkpoint{h.set.ID, accepted, seq, h.norms}, nil)
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

	h.mail.restore(s.Accepted, s.Seq)
	if h.norms = s.Norms; h.set.Privacy.Clients { // the run began without differential privacy
		h.norms = nil
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
// have answered (see tally.silent), or until the deadline is over and there is a quorum. A client that failed, or whose
// reply was refused, does not count as asked; with a quorum of 1 it ends the run. Without a quorum Run sends the
// instruction again to clients without an answer and waits for another deadline; earlier replies still count, since the
// same instruction has the same answer. Clients from which no answer is expected lower the quorum (see need), so that
// Run ends: with the replies that came, or with an error if hardly a client of the run may answer any more.
//
// If all clients failed, or none is expected to answer, there are no replies and no error. Then replies that are
// unlikely beside all the others are refused; see limits.
func (h *Server) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	replies, err := h.collect(ctx, instruction, h.set.Quorum, 0)
	if err != nil {
		return nil, err
	}
	return h.applyLimits(instruction, replies)
}

// collect is Run with at most tries attempts, unless tries is 0.
func (h *Server) collect(ctx context.Context, instruction message.Instruction, quorum float64,
	tries int) ([]message.Reply, error) {
	collection := newCollection(instruction)
	h.current.Store(collection)
	h.round.Store(int64(instruction.Round))
	defer h.end(collection)
	for k, m := range h.members.roster().clients {
		if m.lapsed != "" {
			collection.fail(k, "", m.lapsed, func() {})
		}
	}

	for try := 1; ; try++ {
		late, err := h.attempt(ctx, collection, quorum)
		if err != nil {
			return nil, err
		}

		view := h.look(collection)
		if err := h.checkAlone(view); err != nil {
			return nil, err
		}

		need := h.need(view, quorum)
		if !late || view.answers >= need || try == tries || len(view.expected) == 0 && !h.set.KeepQuorum {
			return h.replied(collection), nil
		}

		h.counts.change(func(c *counts) { c.Repeats++ })
		h.set.Log.Warn("below the quorum; the instruction is sent again", "round", instruction.Round+1, "kind",
			instruction.Kind, "answered", view.answers, "needed", need, "missing", slices.Concat(view.expected,
				view.others), "try", try+1)
	}
}

// need returns how many of the clients that did not fail must answer; a quorum of 0 needs none. Clients that are not
// expected to answer do not count as asked, down to Settings.Least, unless the operator asked for the quorum.
func (h *Server) need(v view, quorum float64) int {
	switch {
	case quorum == 0:
		return 0
	case h.set.KeepQuorum:
		return QuorumSize(quorum, v.asked())
	}
	return max(QuorumSize(quorum, v.asked()-len(v.others)), h.set.least(v.asked()))
}

// attempt sends the instruction to all clients without an answer and waits; late reports that the deadline is over.
func (h *Server) attempt(ctx context.Context, collection *collection, quorum float64) (late bool, err error) {
	var over <-chan time.Time
	limit := h.set.Deadline
	if collection.instruction.Kind == wire.EndKind && (limit == 0 || limit > time.Minute) {
		limit = time.Minute
	}

	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}

	for again := true; ; again = false {
		if err := h.sendAll(collection, again); err != nil {
			return false, err
		}

		if done, err := h.done(collection, quorum); done || err != nil {
			return false, err
		}

		select {
		case <-collection.wake:
		case <-over:
			h.deadlinePassed(collection)
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// done reports whether there is nobody to wait for. It returns an error if all must answer and one failed.
func (h *Server) done(c *collection, quorum float64) (bool, error) {
	view := h.look(c)
	if quorum == 1 && h.set.KeepQuorum && len(view.failed) > 0 {
		k := slices.Min(slices.Collect(maps.Keys(view.failed)))
		return false, fmt.Errorf("round %d: %d of %d clients did not answer, and --quorum 1 needs all: client %d: %s",
			c.instruction.Round+1, len(view.failed), len(c.instruction.Clients), k, view.failed[k])
	}

	if view.waits {
		return false, nil
	}

	return view.answers >= h.need(view, quorum) || len(view.expected) == 0 && !h.set.KeepQuorum, nil
}

// sendAll sends the instruction to the joined clients that do not have it, or with again to all without an answer.
func (h *Server) sendAll(c *collection, again bool) error {
	r := h.members.roster()
	for _, k := range c.instruction.Clients {
		given, _, open := c.state(k)
		if open && (again || !given) && r.clients[k].joined {
			if err := h.send(c, k); err != nil {
				return err
			}
		}
	}

	return nil
}

// changed makes the current collection and Wait check their state after a client came or left.
func (h *Server) changed() {
	if c := h.current.Load(); c != nil {
		notify(c.wake)
	}
	notify(h.members.changed)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// replied closes a collection and returns its replies.
func (h *Server) replied(c *collection) (out []message.Reply) {
	got := c.close()
	for _, k := range slices.Sorted(maps.Keys(got)) {
		out = append(out, got[k])
		if c.instruction.Kind == message.Train {
			h.mail.trained(k, c.given[k])
		}
	}

	return out
}

// end closes a collection and ends its pending instructions.
func (h *Server) end(c *collection) {
	c.close()
	h.current.Store(nil)
	h.mail.clear()
}
