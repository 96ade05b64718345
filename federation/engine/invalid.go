package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// dropInvalid passes replies to the method. If the method returns an error or panics over replies of clients on other
// machines, dropInvalid leaves out each reply over which the method fails by itself, and calls the method again, from
// the same state, with the others. Clients of this process are trusted, so that such an error is one of the program. It
// is also one of the program if the method fails over each of several replies in maxFailures calls in a row. Earlier,
// and with a single reply, they are left out, and the round has no replies. If the method fails over no single reply,
// those over which it fails together with the earlier ones are left out.
func (s *Server) dropInvalid(ctx context.Context, g *method.Global, replies []message.Reply,
	do func(g *method.Global, ups []method.Upload) error) ([]message.Reply, error) {
	if s.Remote == nil {
		return replies, do(g, message.UploadsOf(replies))
	}
	before := cloneGlobal(g)
	failed := recovered(do, g, message.UploadsOf(replies))
	if failed == nil {
		s.failures = 0
		return replies, nil
	}
	if ctx.Err() != nil || len(replies) == 0 || errors.As(failed, new(method.TooFewError)) {
		*g = *before
		return nil, failed
	}
	var good []message.Reply
	keep := func(r message.Reply, with ...message.Reply) {
		ups := message.UploadsOf(append(with[:len(with):len(with)], r))
		if err := recovered(do, cloneGlobal(before), ups); err != nil {
			s.Remote.Rejected(g.Round, r.Client, err)
		} else {
			good = append(good, r)
		}
	}
	for _, r := range replies {
		keep(r)
	}
	switch alone := good; {
	case len(alone) == 0:
		if len(replies) > 1 {
			s.failures++
		}
		if s.failures == maxFailures {
			return nil, failed
		}
		*g = *before
		return nil, nil
	case len(alone) == len(replies) || recovered(do, cloneGlobal(before), message.UploadsOf(alone)) != nil:
		good = nil // each is valid by itself, but not with all others
		for _, r := range alone {
			keep(r, good...)
		}
	}
	*g = *before
	return good, recovered(do, g, message.UploadsOf(good))
}

// maxFailures bounds the calls in a row in which a method fails over all replies. Few clients that lie are hardly drawn
// together, without others, so often.
const maxFailures = 3

// mergeSum merges the sum of several clients. If the method fails over the sum, for example because there are too few
// clients for its noise, the round changes nothing.
func (s *Server) mergeSum(g *method.Global, sum message.Reply, rec *record.Record) []message.Reply {
	before, merge := cloneGlobal(g), s.Method.Merge
	if s.Remote != nil { // otherwise a panic is one of the program
		merge = func(g *method.Global, ups []method.Upload) error { return recovered(s.Method.Merge, g, ups) }
	}
	if err := merge(g, message.UploadsOf([]message.Reply{sum})); err != nil {
		*g = *before
		rec.Warnings = append(rec.Warnings, fmt.Sprintf("round %d is skipped: %v", g.Round+1, err))
		return nil
	}
	return []message.Reply{sum}
}

// dropSkipped removes replies for several clients that have no upload, and records the clients whose messages were
// refused behind such replies.
func (s *Server) dropSkipped(replies []message.Reply, rec *record.Record) []message.Reply {
	return slices.DeleteFunc(replies, func(r message.Reply) bool {
		for _, x := range r.Refused {
			if s.Remote != nil {
				s.Remote.Rejected(rec.Round, x.Client, errors.New(x.Reason))
			} else {
				rec.Refused = append(rec.Refused, x)
			}
		}
		if r.Skipped {
			rec.Warnings = append(rec.Warnings, r.Warnings...)
			rec.Notes = r.Notes
		}
		return r.Skipped
	})
}

// recovered calls do and returns a panic over the content of an upload as an error.
func recovered(do func(g *method.Global, ups []method.Upload) error, g *method.Global,
	ups []method.Upload) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method failed on the uploads: %v", p)
		}
	}()
	if err := do(g, ups); err != nil {
		return err
	}
	return checkFinite(g)
}

// checkFinite returns an error for a state with numbers that are not finite.
func checkFinite(g *method.Global) error {
	parts := []tensor.Map{g.Shared, g.Broadcast, g.State}
	for _, id := range slices.Sorted(maps.Keys(g.PerClient)) {
		parts = append(parts, g.PerClient[id])
	}
	for _, part := range parts {
		if err := message.CheckFinite("", part); err != nil {
			return err
		}
	}
	return nil
}

// cloneGlobal copies a state and the tensors in it.
func cloneGlobal(g *method.Global) *method.Global {
	c := *g
	c.Shared, c.Broadcast, c.State = g.Shared.Clone(), g.Broadcast.Clone(), g.State.Clone()
	c.Notes, c.PerClient = maps.Clone(g.Notes), map[int]tensor.Map{}
	for id, m := range g.PerClient {
		c.PerClient[id] = m.Clone()
	}
	return &c
}
