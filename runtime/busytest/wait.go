package busytest

import (
	"context"
	"os"
	"testing"
	"time"
)

// grace is the time that a test has left when it gives up: it says what it waited for and ends its processes.
const grace = 20 * time.Second

// Until polls a condition until it holds. It has no limit of its own: shortly before the test binary's -timeout ends
// all tests, it fails the test with what it waited for. The condition may end the test itself if it can hold no longer.
// It runs in the goroutine of the caller, which must be the test's. Inside synctest.Test, which tells no deadline,
// synctest.Wait waits.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	hung := Hung(t)
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-hung:
			t.Fatalf("the test waited for %s until its time was over", what)
		default:
			time.Sleep(pause)
		}
	}
}

// Context returns a context that ends with the test, or shortly before -timeout ends all tests.
func Context(t testing.TB) context.Context {
	end, ok := deadline(t)
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), end)
	t.Cleanup(cancel)
	return ctx
}

// Hung returns a channel that closes when a test must give up: with the test's end, or shortly before -timeout ends all
// tests. It takes the place of time.After in a select of which another case must come first.
func Hung(t testing.TB) <-chan struct{} { return Context(t).Done() }

// Delay sleeps as a part that a test plays: a slow peer, a slow disk, a fault that comes at some moment. A test that
// uses it passes whatever the length is and whatever other goroutines did meanwhile. Until waits for something to
// happen.
func Delay(d time.Duration) { time.Sleep(d) }

// Soak reports whether tests run at their whole length, as make soak runs them.
func Soak() bool { return os.Getenv("PROMPTFED_TEST_SOAK") != "" }

// Part reports whether a test runs the case at a place of a list: all of them in a soak, otherwise one of so many.
func Part(place, many int) bool { return place%many == 0 || Soak() }

// deadline is when a test gives up waiting. Benchmarks, fuzz targets and tests with -timeout 0 have none.
func deadline(t testing.TB) (end time.Time, ok bool) {
	limited, is := t.(interface{ Deadline() (time.Time, bool) })
	if !is {
		return end, false
	}
	end, ok = limited.Deadline()
	return end.Add(-grace), ok
}
