//go:build unix

package signals

import (
	"context"
	"syscall"
	"testing"
)

// A signal that asks to stop after the round lets each run finish its own; then the program stops.
func TestEachRunFinishesItsRound(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &Finisher{cancel: cancel}
	first, round, end := f.Begin(ctx)
	second, _, endSecond := f.Begin(ctx)
	round()
	f.hear(syscall.SIGUSR1)
	if first.Err() != nil || !f.Asked() {
		t.Fatal("the signal ends a round")
	}
	round()
	end()
	if first.Err() == nil || second.Err() != nil || ctx.Err() != nil {
		t.Errorf("the end of a round of the first run: %v, %v, %v", first.Err(), second.Err(), ctx.Err())
	}
	endSecond()
	if ctx.Err() == nil {
		t.Error("the program goes on without a run")
	}
	if third, _, _ := f.Begin(context.Background()); third.Err() == nil {
		t.Error("a run begins after the signal")
	}
}
