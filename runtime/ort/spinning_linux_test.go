package ort_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Threads spin only during a run: in the 60 ms after each of 10 runs the process takes almost no time. ONNX Runtime's
// default is 2^20 iterations of a loop with a pause, which took 112 ms in total.
func TestSpinningEndsWithTheRun(t *testing.T) {
	const n = 256
	b := (&builder{}).in("x", f32, dims{n, n}).node("MatMul", []string{"x", "x"}, "y").out("y", f32, dims{n, n})
	s := open(t, b.model(t), ort.Options{IntraThreads: 2, Spinning: true})
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var idle time.Duration
	for range 10 {
		run(t, s, tensor.Map{"x": tensor.New(n, n)})
		before := used()
		time.Sleep(60 * time.Millisecond)
		idle += used() - before
	}
	t.Logf("%v between runs", idle)
	if idle > 30*time.Millisecond {
		t.Errorf("threads take %v between 10 runs, want at most 30 ms", idle)
	}
}

// Without Spinning, threads spin if all of them have a core. By hand: 2 runs of 2 threads need 4.
func TestThreadsSpinWhereEachHasACore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, c := range []struct {
		o    ort.Options
		want bool
	}{
		{ort.Options{}, false}, {ort.Options{Spinning: true}, true}, {ort.Options{IntraThreads: 2}, false},
		{ort.Options{IntraThreads: 2, Runs: 2}, true}, {ort.Options{IntraThreads: 2, Runs: 3}, false},
		{ort.Options{IntraThreads: 5, Runs: 1}, false}, {ort.Options{IntraThreads: 1, Runs: 1}, false},
		{ort.Options{IntraThreads: 2, Runs: 3, Spinning: true}, true},
	} {
		if got := c.o.Spins(); got != c.want {
			t.Errorf("%d runs of %d threads spin: %v", c.o.Runs, c.o.IntraThreads, got)
		}
	}
}
