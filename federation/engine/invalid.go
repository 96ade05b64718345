package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// dropInvalid does something with replies that may come from anybody. Where the method gives an error, or fails
// otherwise, the replies that it fails over by themselves are left out, and it is tried again with the others from the
// same state. Clients of this process are trusted: an error is one of the program. So it is where the method fails over
// all of several replies; a single client is left out, and the round has none.
func (s *Server) dropInvalid(g *method.Global, replies []message.Reply, do func(g *method.Global,
	ups []method.Upload) error) ([]message.Reply, error) {
	if s.Remote == nil {
		return replies, do(g, message.UploadsOf(replies))
	}
	before := cloneGlobal(g)
	failed := recovered(do, g, message.UploadsOf(replies))
	if failed == nil {
		return replies, nil
	}
	var good []message.Reply
	for _, r := range replies {
		if err := recovered(do, cloneGlobal(before), message.UploadsOf([]message.Reply{r})); err != nil {
			s.Remote.Rejected(g.Round, r.Client, err)
			continue
		}
		good = append(good, r)
	}
	*g = *before
	if len(good) == len(replies) || len(good) == 0 && len(replies) > 1 {
		return nil, failed
	}
	if len(good) == 0 {
		return nil, nil
	}
	return good, recovered(do, g, message.UploadsOf(good))
}

// mergeSum merges the sum of several clients, which is nobody's own. Where the method fails over it, such as over too
// few clients for its noise, the round changes nothing.
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

// dropSkipped takes out replies for several clients that have no upload, and notes whose messages behind such replies
// were refused.
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

// recovered turns a panic over what an upload holds into an error.
func recovered(do func(g *method.Global, ups []method.Upload) error, g *method.Global,
	ups []method.Upload) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method failed on the uploads: %v", p)
		}
	}()
	return do(g, ups)
}

// cloneGlobal copies a state, so that what changes the one leaves the other.
func cloneGlobal(g *method.Global) *method.Global {
	c := *g
	c.Shared, c.Broadcast, c.State = g.Shared.Clone(), g.Broadcast.Clone(), g.State.Clone()
	c.Notes, c.PerClient = maps.Clone(g.Notes), map[int]tensor.Map{}
	for id, m := range g.PerClient {
		c.PerClient[id] = m.Clone()
	}
	return &c
}
