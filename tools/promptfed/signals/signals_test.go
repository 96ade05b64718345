//go:build unix

package signals

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal stops the work, and its repetition does nothing. Later ones have their default effect. Time is virtual.
func TestSignalAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		received, restored := make(chan os.Signal), false
		go (&Finisher{cancel: cancel}).listen(ctx, received, func() { restored = true })
		received <- os.Interrupt
		synctest.Wait()
		if ctx.Err() == nil || restored {
			t.Error("the work goes on, or a repetition ends the process")
		}
		time.Sleep(repeats)
		if synctest.Wait(); !restored {
			t.Error("a later signal has no effect")
		}
	})
}

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
