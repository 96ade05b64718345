package signals

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Finisher stops the work of the program on signals. An interrupt or SIGTERM stops it at once. SIGUSR1 stops it after
// the current round, so that no work is lost. A second signal stops it at once. A signal after the stop ends the
// process.
type Finisher struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	rounds int  // number of runs, and of other work with an end of its own, in progress
	asked  bool // a signal asked to stop after the round
	again  bool // a signal asked to restart the work
	gentle bool // SIGTERM stops after the round
}

type key struct{}

// Context returns a context that ends on signals. stop restores the default handling of signals.
func Context(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	finisher := &Finisher{cancel: cancel}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(finishSignals, os.Interrupt, syscall.SIGTERM)...)
	go finisher.listen(ctx, signals, func() { signal.Stop(signals) })
	return context.WithValue(ctx, key{}, finisher), func() {
		signal.Stop(signals)
		cancel()
	}
}

// repeats is the time for which a signal repeats the one that stopped the work: timeout(1) and the like send it twice.
const repeats = time.Second

// listen handles signals until they have stopped the work. Then it restores their default handling, which ends a
// process whose work does not stop.
func (f *Finisher) listen(ctx context.Context, received <-chan os.Signal, restore func()) {
	for {
		select {
		case s := <-received:
			f.hear(s)
		case <-ctx.Done():
			time.Sleep(repeats)
			restore()
			return
		}
	}
}

// FromContext returns the Finisher of a context, or one without signals.
func FromContext(ctx context.Context) *Finisher {
	if f, ok := ctx.Value(key{}).(*Finisher); ok {
		return f
	}
	return &Finisher{cancel: func() {}}
}

// hear handles a signal.
func (f *Finisher) hear(received os.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	term := received == syscall.SIGTERM
	if received == os.Interrupt || f.asked || term && !f.gentle || f.rounds == 0 {
		f.again = f.again || received != os.Interrupt && !term
		f.cancel()
		return
	}

	f.asked, f.again = true, !term
	slog.Info("stopping after this round; a second signal stops at once", "signal", received)
}

// Begin marks the begin of the rounds of a run. The run calls round after each round whose result is stored, and end
// after the last one. Its context ends if a signal asked to stop and round is called, while other runs finish their own
// round; when all have ended, the work of the program stops.
func (f *Finisher) Begin(ctx context.Context) (_ context.Context, round, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	round = func() {
		if f.Asked() {
			cancel()
		}
	}

	f.mu.Lock()
	f.rounds++
	f.mu.Unlock()
	round()
	return ctx, round, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.rounds--; f.asked && f.rounds == 0 {
			f.cancel()
		}
		cancel()
	}
}

// Asked reports whether a signal asked to stop after the round.
func (f *Finisher) Asked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// FinishOnTerm makes SIGTERM stop the work after the current round, as SIGUSR1 does, but without a restart.
func (f *Finisher) FinishOnTerm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gentle = true
}

// Restart reports whether a signal asked for a restart of the work.
func (f *Finisher) Restart() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.again
}
