package server

import (
	"slices"
	"testing"

	"promptfed/federation/engine/message"
)

// Rounds do not wait for a client that missed three deadlines; the end of the run does. Ten answers take back one
// deadline, so that a client which is silent now and then delays one of eleven instructions. Each change is reported
// once.
func TestPatience(t *testing.T) {
	h := newLimited(t, nil)
	c := newCollection(message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2}})
	c.give(0, "x")
	c.give(1, "x")
	c.accept(message.Reply{Client: 1}, func() {})
	end := &collection{instruction: message.Instruction{Kind: "end"}}
	step := func(what string, awaited bool, reported ...int) {
		t.Helper()
		if what == "answers" {
			h.counts.change(func(c *counts) { c.clients[0].miss(-1) })
		} else {
			h.deadlinePassed(c)
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
	if !h.awaited(c, 1) || !h.awaited(c, 2) || h.counts.tally(1).missed+h.counts.tally(2).missed > 0 {
		t.Error("clients that answered, or had no instruction, missed a deadline")
	}
}
