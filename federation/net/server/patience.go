package server

import (
	"fmt"
	"time"

	"promptfed/federation/net/wire"
)

// Deadlines is how many deadlines a client may miss before rounds no longer wait for it, and missCost how many answers
// take back one. A client that is silent now and then therefore delays three instructions, and then at most one of
// missCost+1. A refused reply counts as the share of its deadline that it took.
const Deadlines, missCost = 3, 10

// silent reports whether a client missed so many deadlines that no round waits for it.
func (t tally) silent() bool { return t.missed > (Deadlines-1)*missCost }

// delay returns the share of missCost that a reply took that comes now.
func (s Settings) delay(request *pending) int {
	if s.Deadline == 0 || request.since.IsZero() {
		return 0
	}
	return int(missCost * min(1, float64(time.Since(request.since))/float64(s.Deadline)))
}

// miss adds missed deadlines, each missCost, or with -1 takes back an answer. It reports whether a silence begins or
// ends with it.
func (t *tally) miss(n int) (changes bool) {
	before := t.silent()
	t.missed = max(0, min(t.missed+n, Deadlines*missCost))
	return before != t.silent()
}

// Survives returns how many of a round's clients may be silent at its deadline, and how many once they missed so many
// deadlines that no round waits for them. Without a deadline a round waits for all.
func (s Settings) Survives(clients int) (first, later int) {
	if s.Deadline == 0 {
		return 0, 0
	}

	first = clients - QuorumSize(s.Quorum, clients)
	if s.KeepQuorum {
		return first, first
	}

	return first, clients - max(1, s.least(clients))
}

// least returns the smallest number of answers that an instruction to so many clients can use.
func (s Settings) least(clients int) int {
	if s.Least == 0 {
		return 0
	}
	return QuorumSize(s.Least, clients)
}

// deadlinePassed records which clients have an instruction and missed its deadline.
func (h *Server) deadlinePassed(collection *collection) {
	for k, m := range h.members.roster().clients {
		if given, _, open := collection.state(k); !m.joined || !given || !open {
			continue
		}
		h.delayed(k, collection.instruction.Round, missCost)
	}
}

// delayed counts what a client delayed a round by, in parts of missCost.
func (h *Server) delayed(client, round, cost int) {
	silent := false
	h.counts.change(func(c *counts) {
		if silent = c.clients[client].miss(cost); silent {
			c.limited.Unawaited = append(c.limited.Unawaited, client)
		}
	})

	if silent {
		h.set.Log.Warn("a client missed its deadlines; rounds do not wait for it until it has answered again",
			"client", client, "round", round+1, "deadlines", Deadlines, "answers", missCost)
	}
}

// checkAlone returns an error if an instruction has too few answers, nobody is left to wait for, and no other
// instruction could have more: fewer clients of the run than Settings.Least, or none, may answer.
func (h *Server) checkAlone(v view) error {
	least := max(1, h.set.least(v.asked()))
	if v.answers >= least || len(v.expected) > 0 || len(v.others) == 0 || h.set.KeepQuorum ||
		v.instruction.Kind == wire.EndKind || v.may >= least {
		return nil
	}
	return fmt.Errorf("round %d: clients %v do not answer, and %d of the run's %d may; at least %d are needed: start "+
		"them again and continue with --resume", v.instruction.Round+1, v.others, v.may, len(h.callers), least)
}
