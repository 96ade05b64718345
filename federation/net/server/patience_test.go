package server

import (
	"errors"
	"slices"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
)

// Rounds do not wait for a client that missed three deadlines; the end of the run does. Ten answers take back one
// deadline, so that a client which is silent now and then delays one of eleven instructions. A refused reply counts as
// the share of the deadline that it took. Each change is reported once.
func TestPatience(t *testing.T) {
	h := newLimited(t, nil)
	h.set.Deadline = time.Hour
	c := newCollection(message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2}})
	c.give(0, "x")
	c.give(1, "x")
	c.accept(message.Reply{Client: 1}, func() {})
	end := &collection{instruction: message.Instruction{Kind: "end"}}
	step := func(what string, awaited bool, reported ...int) {
		t.Helper()
		request := &pending{Instruction: &wire.Instruction{Id: "x"}, collection: newCollection(c.instruction),
			since: time.Now()}
		request.collection.give(0, "x")
		switch what {
		case "answers":
			h.counts.change(func(c *counts) { c.clients[0].miss(-1) })
		case "misses":
			h.deadlinePassed(c)
		case "is refused late":
			request.since = request.since.Add(-h.set.Deadline)
			fallthrough
		case "is refused":
			h.refuse(0, request, "", errors.New("NaN"))
		case "is ignored late": // an answer that the method refuses
			request.since = request.since.Add(-h.set.Deadline)
			h.record(0, request, message.Reply{}, 0)
			h.Rejected(0, 0, errors.New("NaN"))
		}
		got := h.Report().Unawaited
		if h.awaited(c, 0) != awaited || !slices.Equal(got, reported) || !h.awaited(end, 0) {
			t.Errorf("%s: rounds wait for it: %v, want %v; the record has %v", what, h.awaited(c, 0), awaited, got)
		}
	}
	step("misses", true)
	step("answers", true)
	step("misses", true)
	step("misses", false, 0)
	step("misses", false)
	if s := h.Status(); !s.Clients[0].Unawaited || s.Clients[1].Unawaited {
		t.Errorf("%+v", s.Clients)
	}
	h.set.Privacy.Sample = true
	if h.Status().Clients[0].Unawaited {
		t.Error("the status shows who should train, which is secret")
	}
	for range 9 {
		step("answers", false)
	}
	step("answers", true)
	step("misses", false, 0)
	for n := range 20 {
		step("answers", n >= 9)
	}
	step("misses", true)
	step("misses", false, 0)
	for n := range 30 {
		step("answers", n >= 9)
	}
	for range 4 {
		step("is refused", true)
	}
	step("is refused late", true)
	step("misses", true)
	step("is refused late", false, 0)
	for n := range 30 {
		step("answers", n >= 9)
	}
	step("is ignored late", true)
	step("misses", true)
	step("is ignored late", false, 0)
	if !h.awaited(c, 1) || !h.awaited(c, 2) || h.counts.tally(1).missed+h.counts.tally(2).missed > 0 {
		t.Error("clients that answered, or had no instruction, missed a deadline")
	}
}
