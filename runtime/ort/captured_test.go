package ort_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// fixed opens a graph for fixed sizes on a device, for which the CPU stands in unless make test-cuda runs: y = x W of
// rows of x and of W [2,3], total = Σ y and n = 2 i.
func fixed(t *testing.T, o ort.Options) *ort.Session {
	b := (&builder{}).in("x", f32, dims{"B", 2}).in("W", f32, dims{2, 3}).in("i", i64, dims{"I"})
	b.node("MatMul", []string{"x", "W"}, "y").node("ReduceSum", []string{"y"}, "total", intAttr("keepdims", 0))
	b.node("Add", []string{"i", "i"}, "n").out("y", f32, dims{"B", 3}).out("total", f32, dims{})
	return open(t, b.out("n", i64, dims{"I"}).model(t), o)
}

func onDevice() ort.Options { return ort.Options{Bind: true} }

// drawn returns inputs of some rows, and the results for W of ones: y holds the sums of the rows of x, which are whole
// numbers.
func drawn(rows, k int) (in, want tensor.Map) {
	x, y, total := tensor.New(rows, 2), tensor.New(rows, 3), 0
	for r := range rows {
		x.Data[2*r], x.Data[2*r+1] = float32(r+k), float32(3*k)
		for c := range 3 {
			y.Data[3*r+c] = float32(r + 4*k)
		}
		total += 3 * (r + 4*k)
	}
	return tensor.Map{"x": x, "i": tensor.OfInts([]int64{int64(k), 7}, 2)}, tensor.Map{"y": y,
		"total": tensor.Of([]float32{float32(total)}), "n": tensor.OfInts([]int64{int64(2 * k), 14}, 2)}
}

func checkDrawn(t *testing.T, out, want tensor.Map) {
	t.Helper()
	for name, w := range want {
		if got := out[name]; !got.SameShape(w) || !slices.Equal(got.Data, w.Data) || !slices.Equal(got.Ints, w.Ints) {
			t.Errorf("%s is %v %v %v, want %v %v", name, got, got.Data, got.Ints, w.Data, w.Ints)
		}
	}
}

// Runs of the same sizes replay one graph with inputs and outputs at fixed addresses. Runs of several goroutines, of
// several sizes, with a value on the device that changes, have the results of plain runs.
func TestCapturedRunsAreRuns(t *testing.T) {
	orttest.RequireLibrary(t)
	for _, devices := range []int{1, 2} {
		o := onDevice()
		if o.Devices = devices; devices > 1 {
			o.Provider = ort.CPU
		}
		before := ort.Cached()
		s := fixed(t, o)
		plain := ort.Values{"W": ort.NewValue(tensor.Of([]float32{1, 1, 1, 1, 1, 1}, 2, 3))}
		double := ort.Values{"W": ort.NewValue(tensor.Of([]float32{2, 2, 2, 2, 2, 2}, 2, 3))}
		var all sync.WaitGroup
		for k := range 8 {
			all.Go(func() {
				for n := range 20 {
					in, want := drawn(2+n%3, k+n)
					held := plain
					if n%4 == 3 {
						held = double
						for _, w := range want {
							for j := range w.Data {
								w.Data[j] *= 2
							}
						}
					}
					out, err := s.RunWith(t.Context(), in, held)
					if err != nil {
						t.Error(err)
						return
					}
					checkDrawn(t, out, want)
				}
			})
		}
		all.Wait()
		if n := ort.Cached().Captured - before.Captured; n < 3*devices || n > 6*devices {
			t.Errorf("%d captured graphs of 3 sizes on %d devices, with at most 2 of each", n, devices)
		}
		goldentest.NoError(t, s.Close())
		captured := ort.Cached().Captured
		for rows := range 6 {
			for range 2 { // sizes that had a graph, and others
				in, _ := drawn(rows, 1)
				_, err := s.RunWith(t.Context(), in, plain)
				wantError(t, err, "already closed")
			}
		}
		if n := ort.Cached().Captured - captured; n > 0 {
			t.Errorf("%d graphs after the session was closed", n)
		}
	}
}

// Sizes that come once, and those beyond the bound, take the graph of all sizes. A graph that no run took for long
// gives place to other sizes.
func TestCapturedGraphsAreBounded(t *testing.T) {
	orttest.RequireLibrary(t)
	s := fixed(t, onDevice())
	run := func(rows, k int) {
		t.Helper()
		in, want := drawn(rows, k)
		in["W"] = tensor.Of([]float32{1, 1, 1, 1, 1, 1}, 2, 3)
		checkDrawn(t, run(t, s, in), want)
	}
	count := func(want int, what string) {
		t.Helper()
		if n := s.SizesWithGraphs(); n != want {
			t.Errorf("%s: %d sizes have a graph of their own, want %d", what, n, want)
		}
	}
	run(1, 1)
	count(0, "a size that came once")
	run(1, 2)
	count(1, "a size that came twice")
	for rows := 2; rows < 30; rows++ {
		run(rows, 1)
		run(rows, 2)
	}
	count(16, "many sizes")
	for n := range 1000 {
		run(1, n)
	}
	run(29, 3)
	count(16, "after an eviction")
	if !s.HasGraphFor("[[29 2] [2 3] [2]]") || s.HasGraphFor("[[28 2] [2 3] [2]]") {
		t.Error("sizes that come again have no graph in place of those that no run took for 1000 runs, or others have")
	}
}

// Large inputs come in parts, here in two of 2 MiB.
func TestLargeInputsOfCapturedGraphs(t *testing.T) {
	orttest.RequireLibrary(t)
	b := (&builder{}).in("x", f32, dims{"B"}).node("Neg", []string{"x"}, "y").out("y", f32, dims{"B"})
	s := open(t, b.model(t), onDevice())
	x, want := tensor.New(1<<20), tensor.New(1<<20)
	for i := range x.Data {
		x.Data[i], want.Data[i] = float32(i), float32(-i)
	}
	for range 3 {
		equal(t, run(t, s, tensor.Map{"x": x})["y"], want)
	}
}

// A profile has the operators of each graph, which a replay would not have: that of the graph for all sizes, and that
// of the one graph for the sizes that come again, however often.
func TestProfiledGraphsAreNotCaptured(t *testing.T) {
	orttest.RequireLibrary(t)
	o, before := onDevice(), ort.Cached()
	o.Profile = filepath.Join(t.TempDir(), "profile")
	s := fixed(t, o)
	for k := range 6 {
		in, want := drawn(3, k)
		in["W"] = tensor.Of([]float32{1, 1, 1, 1, 1, 1}, 2, 3)
		checkDrawn(t, run(t, s, in), want)
	}
	goldentest.NoError(t, s.Close())
	files, err := filepath.Glob(o.Profile + "*")
	c := ort.Cached()
	if err != nil || len(files) != 2 || c.Captured != before.Captured || c.Refused != before.Refused {
		t.Errorf("profiles %v (%v), %d captured graphs, want 2 and none", files, err, c.Captured-before.Captured)
	}
}

// A graph that cannot be captured runs nevertheless. Here, the size of an output depends on values.
func TestGraphsThatCannotBeCaptured(t *testing.T) {
	orttest.RequireLibrary(t)
	b := (&builder{}).in("x", f32, dims{"B"}).node("NonZero", []string{"x"}, "y").out("y", i64, dims{1, "N"})
	s := open(t, b.model(t), onDevice())
	before := ort.Cached().Refused
	for range 3 {
		out, err := s.Run(t.Context(), tensor.Map{"x": tensor.Of([]float32{0, 2, 0, 3}, 4)})
		if err != nil || !slices.Equal(out["y"].Ints, []int64{1, 3}) {
			t.Errorf("%v, %v", out, err)
		}
	}

	if c := ort.Cached(); c.Refused != before+1 || c.Why == "" {
		t.Errorf("%d refused graphs, want one more than %d; the reason is %q", c.Refused, before, c.Why)
	}
}

// A graph for sizes that come again has the weights that its session was opened with. By hand, [1,2] times the weights
// is [9,12,15], whatever the file holds later.
func TestReplacedWeightsAreNotRead(t *testing.T) {
	orttest.RequireLibrary(t)
	dir, name := t.TempDir(), "m.safetensors"
	offset := safetensors(t, filepath.Join(dir, name), 0, weights)
	o, before := onDevice(), ort.Cached().Refused
	o.WeightsDir = dir
	s := open(t, externalLinear(t, name, offset, 24), o)
	safetensors(t, filepath.Join(dir, "other"), 0, []float32{7, 7, 7, 7, 7, 7})
	goldentest.NoError(t, os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, name)))
	for range 3 {
		y := run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"]
		equal(t, y, tensor.Of([]float32{9, 12, 15}, 1, 3))
	}
	if c := ort.Cached(); c.Refused != before+1 {
		t.Errorf("%d refused graphs, want one more than %d", c.Refused, before)
	}
}
