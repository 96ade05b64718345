package ort_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// inUse returns private memory without what is kept for later use. Of the latter, the C heap has some for each thread.
func inUse(t testing.TB) float64 {
	t.Helper()
	goldentest.NoError(t, ort.TrimMemory())
	return private(t)
}

// private returns the resident memory of this process in MiB that is not mapped from files. Source: proc(5),
// /proc/PID/statm, fields 2 and 3 in pages.
func private(t testing.TB) float64 {
	t.Helper()
	debug.FreeOSMemory()
	raw := filetest.Read(t, "/proc/self/statm")
	var size, rss, shared float64
	if _, err := fmt.Sscan(string(raw), &size, &rss, &shared); err != nil {
		t.Fatal(err)
	}
	return (rss - shared) * float64(os.Getpagesize()) / (1 << 20)
}

// Create, run and close a session with 1 MiB of weights 1,000 times. A session that leaked its weights would cost 1,000
// MiB. The first 100 cycles fill the caches of the C library and the Go runtime. After them the growth was 6 MiB; it
// may be 64, 1/14 of leaked weights, which leaves room for the allocator's fragmentation.
func TestThousandSessionsDoNotLeak(t *testing.T) {
	const n, bound = 512, 64
	w := make([]float32, n*n)
	w[0] = 2
	b := (&builder{}).in("x", f32, dims{"B", n}).constant("W", w, n, n)
	model := b.node("MatMul", []string{"x", "W"}, "y").out("y", f32, dims{"B", n}).model(t)
	x := tensor.New(4, n)
	x.Data[0] = 3
	var before float64
	for i := range 1000 {
		if i == 100 {
			before = inUse(t)
		}
		s, err := ort.NewSession(model, ort.Options{})
		goldentest.NoError(t, err)
		out, err := s.Run(t.Context(), tensor.Map{"x": x})
		if err != nil || out["y"].Data[0] != 6 {
			t.Fatalf("cycle %d: %v, %v", i, out, err)
		}
		goldentest.NoError(t, s.Close())
	}
	after := inUse(t)
	t.Logf("private memory %.1f MiB after 100 cycles, %.1f MiB after 1000", before, after)
	if after-before > bound {
		t.Errorf("private memory grew by %.1f MiB over 900 cycles; at most %d are allowed", after-before, bound)
	}
}

// 1,000 times, one session computes a value of 1 MiB and keeps it on its device (the CPU stands in for it), and another
// session takes it, with another value that is copied there. Values that are not freed would cost 2 MiB per cycle. They
// are freed some time after a collection.
func TestThousandValuesDoNotLeak(t *testing.T) {
	const n, bound = 512, 64
	both := [2]*ort.Session{}
	for i := range both {
		b := (&builder{}).in("x", f32, dims{n, n}).in("c", f32, dims{n, n}).node("Add", []string{"x", "c"}, "y")
		both[i] = open(t, b.out("y", f32, dims{n, n}).model(t), ort.Options{Bind: true})
	}
	var before float64
	for i := range 1000 {
		if i == 100 {
			before = inUse(t)
		}
		c := tensor.New(n, n)
		c.Data[0] = 3
		in := ort.Values{"c": ort.NewValue(c)}
		mid, err := both[0].RunKeep(t.Context(), tensor.Map{"x": tensor.New(n, n)}, in)
		goldentest.NoError(t, err)
		in["x"] = mid["y"]
		out, err := both[1].RunWith(t.Context(), nil, in)
		if err != nil || out["y"].Data[0] != 6 {
			t.Fatalf("cycle %d: %v, %v", i, out, err)
		}
	}
	busytest.Until(t, fmt.Sprint("at most ", bound, " MiB of values that are not freed"), func() bool {
		return inUse(t)-before <= bound // it collects garbage
	})
}

// Two sessions over the same 64 MiB of external weights. Without prepacking the weights are mapped from the file, so
// private memory must not grow by half of one copy. With prepacking, and on a device (the CPU stands in for it), both
// share one copy, and the second session still runs after the first is closed.
func TestSessionsShareExternalWeights(t *testing.T) {
	const n, mib = 4096, 64
	dir := t.TempDir()
	w := make([]float32, n*n)
	for i := range n {
		w[i*n+i] = 2
	}
	offset := safetensors(t, filepath.Join(dir, "m.safetensors"), 1, w)
	w = nil
	x := tensor.New(2, n)
	x.Data[5] = 3
	doubles := func(s *ort.Session) {
		if y := run(t, s, tensor.Map{"x": x})["y"]; y.Data[5] != 6 {
			t.Errorf("y[5] is %v", y.Data[5])
		}
	}
	growth := func(o ort.Options) float64 {
		before := inUse(t)
		var both [2]*ort.Session
		for i := range both {
			b := (&builder{}).in("x", f32, dims{"B", n}).external("W", "m.safetensors", offset, mib<<20, n, n)
			b.Name = fmt.Sprint("graph ", i) // another graph over the same weights
			both[i] = open(t, b.node("MatMul", []string{"x", "W"}, "y").out("y", f32, dims{"B", n}).model(t), o)
			doubles(both[i])
		}
		after := inUse(t)
		goldentest.NoError(t, both[0].Close())
		doubles(both[1])
		return after - before
	}
	for name, c := range map[string]struct {
		options ort.Options
		lo, hi  float64
	}{
		"plain":     {ort.Options{}, -mib, mib / 2},
		"prepacked": {ort.Options{Prepack: true}, mib * 3 / 4, mib * 3 / 2},
		"device":    {ort.Options{Bind: true}, mib * 3 / 4, mib * 3 / 2},
	} {
		c.options.WeightsDir = dir
		got := growth(c.options)
		t.Logf("%s: private memory of two sessions over %d MiB of weights is %.1f MiB", name, mib, got)
		if got < c.lo || got > c.hi {
			t.Errorf("%s: two sessions hold %.1f MiB of their own, want %.0f to %.0f", name, got, c.lo, c.hi)
		}
	}
}

// Eight values of 8 MiB live until the end: the first run takes 64 MiB, and further runs of the same shape use the same
// buffers. With ONNX Runtime's memory patterns the second run took another 64 MiB in one block.
func TestRunsUseTheSameBuffers(t *testing.T) {
	const rows, width, live, mib = 2048, 1024, 8, 8
	b := (&builder{}).in("v0", f32, dims{"B", width})
	for i := range live {
		b.node("Sigmoid", []string{fmt.Sprint("v", i)}, fmt.Sprint("v", i+1))
	}
	sum := fmt.Sprint("v", live)
	for i := live - 1; i > 0; i-- {
		b.node("Add", []string{sum, fmt.Sprint("v", i)}, fmt.Sprint("s", i))
		sum = fmt.Sprint("s", i)
	}
	s := open(t, b.node("ReduceSum", []string{sum}, "y").out("y", f32, dims{1, 1}).model(t), ort.Options{})
	x := tensor.New(rows, width)
	before := inUse(t)
	var held [3]float64
	for i := range held {
		run(t, s, tensor.Map{"v0": x})
		held[i] = private(t) - before
	}
	t.Logf("private memory of runs is %.1f, %.1f and %.1f MiB", held[0], held[1], held[2])
	if least, most := live*mib*3/4.0, live*mib*3/2.0; held[0] < least || held[2] > most {
		t.Errorf("runs hold %.1f and %.1f MiB, want %.0f to %.0f", held[0], held[2], least, most)
	}
}
