package signals

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Finisher ends the program's work by signals: an interrupt or SIGTERM at once, SIGUSR1 after the round that trains, so
// that nothing of it is lost; a second one of either at once.
type Finisher struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	rounds int  // runs, and other work that has an end of its own, that go on
	asked  bool // to end after the round
	again  bool // and to be started again
	gentle bool // SIGTERM is as SIGUSR1
}

type key struct{}

// Context is a context that signals end; stop gives the signals back.
func Context(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Finisher{cancel: cancel}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(finishSignals, os.Interrupt, syscall.SIGTERM)...)
	go func() {
		for {
			select {
			case s := <-signals:
				f.hear(s)
			case <-ctx.Done():
				return
			}
		}
	}()
	return context.WithValue(ctx, key{}, f), func() {
		signal.Stop(signals)
		cancel()
	}
}

// Of is the finisher of a context, or one that nothing asks.
func Of(ctx context.Context) *Finisher {
	if f, ok := ctx.Value(key{}).(*Finisher); ok {
		return f
	}
	return &Finisher{cancel: func() {}}
}

// hear does what a signal asks for.
func (f *Finisher) hear(s os.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	term := s == syscall.SIGTERM
	if s == os.Interrupt || f.asked || term && !f.gentle || f.rounds == 0 {
		f.again = f.again || s != os.Interrupt && !term
		f.cancel()
		return
	}
	f.asked, f.again = true, !term
	slog.Info("stopping after this round; a second signal stops at once", "signal", s)
}

// Begin says that rounds begin; end that they ended.
func (f *Finisher) Begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rounds++; f.asked {
		f.cancel()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rounds--
	}
}

// Round says that a round is over and kept.
func (f *Finisher) Round() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked {
		f.cancel()
	}
}

// Gently makes SIGTERM the same as SIGUSR1, but for starting again.
func (f *Finisher) Gently() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gentle = true
}

// StartAgain tells whether a signal asked for the work to be started again.
func (f *Finisher) StartAgain() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.again
}
