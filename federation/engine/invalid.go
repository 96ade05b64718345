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
// machines, dropInvalid leaves out those that valid does not return, and calls the method again, from the same state,
// with the others. Clients of this process are trusted, so that such an error is one of the program. It is also one of
// the program if no reply is valid, of several, in maxFailures calls in a row.
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
	*g = *before
	if ctx.Err() != nil || len(replies) == 0 || errors.As(failed, new(method.TooFewError)) {
		return nil, failed
	}
	good, err := s.valid(g.Round, replies, failed, func(list []message.Reply) error {
		if ctx.Err() != nil {
			return nil // the run ends, and no client is to blame
		}
		err := recovered(do, cloneGlobal(before), message.UploadsOf(list))
		if errors.As(err, new(method.TooFewError)) {
			return nil
		}
		return err
	}), context.Cause(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(good) > 0:
		s.failures = 0
		return good, recovered(do, g, message.UploadsOf(good))
	case len(replies) > 1:
		s.failures++
	}
	if s.failures == maxFailures {
		return nil, failed
	}
	return nil, nil
}

// valid returns the replies over which a method does not fail, and refuses the others. failed is its error over all of
// them, and fails tries some. If there is exactly one without which it does not fail, this one is refused. Otherwise
// these are refused over which it fails by themselves; if there are none, those over which it fails together with the
// earlier ones.
func (s *Server) valid(round int, replies []message.Reply, failed error,
	fails func([]message.Reply) error) (good []message.Reply) {
	var culprits []int
	for i := range replies {
		if others := slices.Delete(slices.Clone(replies), i, i+1); len(others) > 0 && fails(others) == nil {
			culprits = append(culprits, i)
		}
	}
	if len(culprits) == 1 {
		s.Remote.Rejected(round, replies[culprits[0]].Client, failed)
		return slices.Delete(slices.Clone(replies), culprits[0], culprits[0]+1)
	}
	keep := func(r message.Reply, with ...message.Reply) {
		if err := fails(append(with[:len(with):len(with)], r)); err != nil {
			s.Remote.Rejected(round, r.Client, err)
		} else {
			good = append(good, r)
		}
	}
	for _, r := range replies {
		keep(r)
	}
	if alone := good; len(alone) == len(replies) || len(alone) > 0 && fails(alone) != nil {
		good = nil // each is valid by itself, but not with all others
		for _, r := range alone {
			keep(r, good...)
		}
	}
	return good
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

// cloneGlobal copies a state and the tensors in it. Tensors that several clients share are copied once.
func cloneGlobal(g *method.Global) *method.Global {
	copies := map[*tensor.Tensor]*tensor.Tensor{}
	clone := func(m tensor.Map) tensor.Map {
		out := make(tensor.Map, len(m))
		for name, t := range m {
			if copies[t] == nil {
				copies[t] = t.Clone()
			}
			out[name] = copies[t]
		}
		return out
	}
	c := *g
	c.Shared, c.Broadcast, c.State = clone(g.Shared), clone(g.Broadcast), clone(g.State)
	c.Notes, c.PerClient = maps.Clone(g.Notes), map[int]tensor.Map{}
	for id, m := range g.PerClient {
		c.PerClient[id] = clone(m)
	}
	return &c
}
