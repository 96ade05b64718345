package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// silence runs instructions to clients of five, of which some never answer, and returns the error of the last. Each
// instruction must have so many answers, and take so many deadlines.
func silence(t *testing.T, change func(s *Settings), clients, silent []int, answers int,
	deadlines ...int) (failed error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newLimited(t, nil)
		h.set.Deadline, h.set.Largest = time.Minute, 1<<20
		if change != nil {
			change(&h.set)
		}
		ctx, stop := context.WithCancel(t.Context())
		for k := range 5 {
			if slices.Contains(silent, k) {
				continue
			}
			go func() {
				for seq := int64(0); ; {
					x, err := h.mail.newer(ctx, k, seq)
					if err != nil {
						return
					}
					seq = x.Seq
					h.record(k, x, message.Reply{Client: k, Upload: method.Upload{Client: k, N: 10,
						Shared: tensor.Map{"ctx": tensor.New(1)}, Extra: tensor.Map{}}}, 1)
				}
			}()
		}
		for i, n := range deadlines {
			began := time.Now()
			replies, err := h.Run(t.Context(), message.Instruction{Kind: message.Train, Round: i, Clients: clients,
				Total: 5, Shared: tensor.Map{"ctx": tensor.New(1)}})
			failed = err
			if len(replies) != answers || h.Status().Round != i || time.Since(began) != time.Duration(n)*time.Minute {
				t.Errorf("instruction %d: %d answers after %v, %v", i, len(replies), time.Since(began), err)
			}
		}
		stop()
	})
	return failed
}

// Silent clients hold three deadlines, and then no round: the only one that is asked, and one of two.
func TestSilenceEnds(t *testing.T) {
	if err := silence(t, nil, []int{2}, []int{2}, 0, 3, 0); err != nil {
		t.Error(err)
	}
	if err := silence(t, nil, []int{2, 3}, []int{2}, 1, 1, 1, 1, 0); err != nil {
		t.Error(err)
	}
}

// Survives says how many of five clients may be silent: at the first deadline, and once three were missed. One more at
// first means another deadline, one more later the end of the run or, with an explicit quorum, no end.
func TestSurvives(t *testing.T) {
	all := []int{0, 1, 2, 3, 4}
	for _, c := range []struct {
		change       func(s *Settings)
		first, later int
	}{
		{func(s *Settings) {}, 1, 4}, // 0.8 of five must answer
		{func(s *Settings) { s.Quorum = 0.5 }, 2, 4},
		{func(s *Settings) { s.Least, s.Quorum = 0.6, 0.6 }, 2, 2},
		{func(s *Settings) { s.Least, s.Masked = 0.6, true }, 1, 2},
	} {
		set := newLimited(t, nil).set
		set.Deadline = time.Minute
		c.change(&set)
		if first, later := set.Survives(5); first != c.first || later != c.later {
			t.Errorf("%d at first, %d later; want %d, %d", first, later, c.first, c.later)
		}
		if err := silence(t, c.change, all, all[:c.first], 5-c.first, 1); err != nil {
			t.Error(err)
		}
		for silent := c.first + 1; silent <= c.later; silent++ {
			if err := silence(t, c.change, all, all[:silent], 5-silent, 3, 0); err != nil {
				t.Error(err)
			}
		}
		if err := silence(t, c.change, all, all[:c.later+1], 0, 3); err == nil {
			t.Errorf("a run survives %d silent clients of five", c.later+1)
		}
	}
	set := newLimited(t, nil).set
	for _, c := range []struct {
		deadline     time.Duration
		first, later int
	}{{0, 0, 0}, {1, 1, 1}} {
		set.Deadline, set.KeepQuorum = c.deadline, true // TestSilenceKeepsTheQuorum
		if first, later := set.Survives(5); first != c.first || later != c.later {
			t.Errorf("deadline %v, quorum kept: %d at first, %d later", c.deadline, first, later)
		}
	}
}

// If fewer clients of the run may answer than an instruction needs, the run stops and names those who do not: without a
// threshold if there is nobody, with one if a draw of this size cannot reach it.
func TestSilenceStopsTheRun(t *testing.T) {
	all := []int{0, 1, 2, 3, 4}
	threshold := func(share float64) func(s *Settings) { return func(s *Settings) { s.Masked, s.Least = true, share } }
	says := func(err error, text string) {
		t.Helper()
		goldentest.WantError(t, err, text, "--resume")
	}
	says(silence(t, nil, all, all, 0, 3), "clients [0 1 2 3 4] do not answer, and 0 of the run's 5 may; at least 1 are")
	says(silence(t, threshold(0.8), all, []int{1, 3}, 0, 3), "clients [1 3] do not answer, and 3 of the run's 5 may; "+
		"at least 4 are")
	if err := silence(t, threshold(0.6), []int{1, 3, 4}, []int{1, 3}, 1, 3, 0); err != nil { // another draw may do
		t.Error(err)
	}
}

// An explicit quorum is not lowered; the server waits for it without end.
func TestSilenceKeepsTheQuorum(t *testing.T) {
	for _, quorum := range []float64{0.8, 1} {
		synctest.Test(t, func(t *testing.T) {
			h := newLimited(t, nil)
			h.set.Deadline, h.set.Largest, h.set.Quorum, h.set.KeepQuorum = time.Minute, 1<<20, quorum, true
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				for h.Totals().Repeats < 100 {
					time.Sleep(time.Minute)
				}
				stop()
			}()
			_, err := h.Run(ctx, message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2, 3, 4}, Total: 5})
			if err != ctx.Err() || err == nil {
				t.Error(err)
			}
		})
	}
}

// A client that answers every second instruction loses its patience as one that is silent does, and then delays at most
// one of eleven instructions.
func TestAlternatingSilence(t *testing.T) {
	h := newLimited(t, nil)
	c := newCollection(message.Instruction{Kind: message.Train, Clients: []int{0}})
	c.give(0, "x")
	delayed := map[string]int{}
	for i := range 110 {
		if i%2 == 0 {
			h.counts.change(func(c *counts) { c.clients[0].miss(-1) })
			continue
		}
		if h.awaited(c, 0) {
			delayed[fmt.Sprint("rounds ", i/55*55, " to ", i/55*55+54)]++
		}
		h.deadlinePassed(c)
	}
	if !maps.Equal(delayed, map[string]int{"rounds 0 to 54": 3}) {
		t.Errorf("it delays %v", delayed)
	}
}
