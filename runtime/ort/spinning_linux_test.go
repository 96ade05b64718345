package ort_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Threads spin only during a run: they take 0.01 ms of processor time between its end and their sleep. With ONNX
// Runtime's default, 2^20 iterations of a loop with a pause, they took 40. The least of ten runs counts: a host that
// stops a virtual machine in this moment can let one look longer.
func TestSpinningEndsWithTheRun(t *testing.T) {
	runtime.LockOSThread() // so that no new thread is that of the test
	defer runtime.UnlockOSThread()
	const n, most = 256, 5e6 // ns
	b := (&builder{}).in("x", f32, dims{n, n}).node("MatMul", []string{"x", "x"}, "y").out("y", f32, dims{n, n})
	before := threads(t)
	s := open(t, b.model(t), ort.Options{IntraThreads: 2, Spinning: true})
	run(t, s, tensor.Map{"x": tensor.New(n, n)})
	own := slices.DeleteFunc(threads(t), func(id string) bool { return slices.Contains(before, id) })

	// used returns the processor time of threads in ns, and whether all of them sleep.
	used := func() (ns int, asleep bool) {
		asleep = true
		for _, id := range own {
			thread := "/proc/self/task/" + id
			var took int
			if _, err := fmt.Sscan(string(filetest.Read(t, thread+"/schedstat")), &took); err != nil {
				t.Fatal(err)
			}
			ns += took
			asleep = asleep && strings.Contains(string(filetest.Read(t, thread+"/status")), "State:\tS")
		}
		return ns, asleep
	}
	var after []int
	for range 10 {
		run(t, s, tensor.Map{"x": tensor.New(n, n)})
		before, _ := used()
		busytest.Until(t, "threads to sleep", func() bool { _, asleep := used(); return asleep })
		now, _ := used()
		after = append(after, now-before)
	}
	t.Logf("threads %v take %v ns after runs", own, after)
	if slices.Min(after) > most {
		t.Errorf("threads take at least %d ns after a run, want at most %.0f", slices.Min(after), most)
	}
}

// threads lists the threads of this process.
func threads(t *testing.T) (ids []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	goldentest.NoError(t, err)
	for _, task := range tasks {
		ids = append(ids, task.Name())
	}
	return ids
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
