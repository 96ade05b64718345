package ort_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// scaled returns the model y = factor x.
func scaled(t testing.TB, factor float32) *onnx.ModelProto {
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", []float32{factor}, 1)
	return b.node("Mul", []string{"x", "W"}, "y").out("y", f32, dims{"B", 2}).model(t)
}

func openCached(t testing.TB, model *onnx.ModelProto, o ort.Options) *ort.Session {
	t.Helper()
	s, err := ort.NewCachedSession(model, o)
	goldentest.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func closeSession(t testing.TB, s *ort.Session) {
	t.Helper()
	goldentest.NoError(t, s.Close())
}

// dropIdle empties the cache, so that no graph of another test is found, and none is pushed out.
func dropIdle(t testing.TB) {
	t.Helper()
	goldentest.NoError(t, ort.DropIdle())
}

// newGraphs returns by how many the cached graphs grow during f.
func newGraphs(f func()) int {
	before, _ := ort.CachedGraphs()
	f()
	after, _ := ort.CachedGraphs()
	return after - before
}

// Sessions of one model with options of one meaning share a graph. Each is closed by itself, and the graph outlives
// all of them.
func TestCachedSessionsShareAGraph(t *testing.T) {
	dropIdle(t)
	model, x := scaled(t, 1001), tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)}
	var all []*ort.Session
	if n := newGraphs(func() {
		for _, o := range []ort.Options{{}, {Provider: ort.CPU}, {Runs: 3}, {}} {
			all = append(all, openCached(t, model, o))
		}
	}); n != 1 {
		t.Errorf("%d graphs are compiled for one", n)
	}
	for i, s := range all {
		equal(t, run(t, s, x)["y"], tensor.Of([]float32{1001, 2002}, 1, 2))
		for range 2 {
			closeSession(t, s)
		}
		if _, err := s.Run(t.Context(), x); !errors.Is(err, ort.ErrClosed) {
			t.Errorf("session %d after its close: %v", i, err)
		}
	}
	if n := newGraphs(func() {
		equal(t, run(t, openCached(t, model, ort.Options{}), x)["y"], tensor.Of([]float32{1001, 2002}, 1, 2))
	}); n != 0 {
		t.Errorf("%d graphs are compiled after all sessions were closed", n)
	}
}

// Whatever changes a compiled graph is part of its identity.
func TestOtherCachedSessionsAreOthers(t *testing.T) {
	dropIdle(t)
	two := func(outputs ...string) ort.Options { return ort.Options{Outputs: outputs} }
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", []float32{1003}, 1)
	b.node("Mul", []string{"x", "W"}, "y").node("Neg", []string{"y"}, "z")
	model := b.out("y", f32, dims{"B", 2}).out("z", f32, dims{"B", 2}).model(t)
	all := []ort.Options{{}, {IntraThreads: 2}, {IntraThreads: 2, Spinning: true}, {OptLevel: ort.OptNone},
		{NoArena: true}, {Prepack: true}, {Bind: true}, {Bind: true, Devices: 2}, {Placement: true},
		two("y"), two("z"), two("z", "y")}
	if n := newGraphs(func() {
		for _, o := range all {
			s := openCached(t, model, o)
			out := run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})
			names := []string{"y", "z"}
			if o.Outputs != nil {
				names = slices.Sorted(slices.Values(o.Outputs))
			}
			if !slices.Equal(out.Names(), names) {
				t.Errorf("%+v has the outputs %v", o, out.Names())
			}
		}
	}); n != len(all) {
		t.Errorf("%d graphs are compiled for %d different options", n, len(all))
	}
	if n := newGraphs(func() {
		for i := range 2 {
			o := ort.Options{Profile: filepath.Join(t.TempDir(), fmt.Sprint("profile", i))}
			s := openCached(t, model, o)
			closeSession(t, s)
			if found, err := filepath.Glob(o.Profile + "*.json"); err != nil || len(found) != 1 {
				t.Errorf("profile %d has the files %v, %v", i, found, err)
			}
		}
	}); n != 0 {
		t.Errorf("%d graphs with a profile are shared", n)
	}
}

// A graph over a file of weights is shared until the file changes, and never while a change could go unnoticed. On a
// device none outlives its sessions.
func TestCachedSessionsReadTheirWeights(t *testing.T) {
	dropIdle(t)
	x := tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)}
	for _, o := range []ort.Options{{}, {Prepack: true}, {Bind: true}} {
		o.WeightsDir = t.TempDir()
		path := filepath.Join(o.WeightsDir, "w")
		write := func(scale float32, at time.Time) (offset int) {
			t.Helper()
			goldentest.NoError(t, os.RemoveAll(path))
			w := slices.Clone(weights)
			for i := range w {
				w[i] *= scale
			}
			offset = safetensors(t, path, 1, w)
			goldentest.NoError(t, os.Chtimes(path, at, at))
			return offset
		}
		use := func(offset int, scale float32) {
			t.Helper()
			s := openCached(t, externalLinear(t, "w", offset, 24), o)
			equal(t, run(t, s, x)["y"], tensor.Of([]float32{9 * scale, 12 * scale, 15 * scale}, 1, 3))
			closeSession(t, s)
		}
		at, soon := time.Now().Add(-time.Hour).Add(1), time.Now().Add(time.Hour)
		if n := newGraphs(func() { use(write(1, soon), 1); use(write(2, soon), 2) }); n != 0 {
			t.Errorf("%+v: %d graphs of new files are shared", o, n)
		}
		offset, want := write(3, at), 1
		if o.Bind {
			want = 0
		}
		orttest.Settle(t, path)
		if n := newGraphs(func() { use(offset, 3); use(offset, 3) }); n != want {
			t.Errorf("%+v: %d graphs are kept over an unchanged file", o, n)
		}
		write(4, at)
		orttest.Settle(t, path)
		if n := newGraphs(func() { use(offset, 4) }); n != want {
			t.Errorf("%+v: %d graphs are kept over a changed file", o, n)
		}
	}
}

// Graphs without sessions are bounded in number and size; threads and memory of a device are not kept at all.
func TestIdleGraphsAreBounded(t *testing.T) {
	const most = 40
	dropIdle(t)
	defer ort.BoundIdle(most)()
	dropped := ort.Cached().Dropped
	for i := range most + 20 {
		closeSession(t, openCached(t, scaled(t, float32(2000+i)), ort.Options{}))
	}
	if _, idle := ort.CachedGraphs(); idle < most*9/10 || idle > most || ort.Cached().Dropped-dropped < 20 {
		t.Errorf("%d graphs are idle, at most %d are wanted; %+v", idle, most, ort.Cached())
	}
	all, idle := ort.CachedGraphs()
	if n := newGraphs(func() { // the first ones were closed
		closeSession(t, openCached(t, scaled(t, 2000), ort.Options{}))
	}); n != 0 {
		t.Errorf("%d graphs more for one that another gives its place to", n)
	}
	closeSession(t, openCached(t, scaled(t, 2000), ort.Options{IntraThreads: 2}))
	w := make([]float32, 8<<20)
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", w, int64(len(w)/2), 2)
	large := b.node("ReduceSum", []string{"W"}, "s").node("Mul", []string{"x", "s"}, "y").out("y", f32, dims{"B", 2})
	closeSession(t, openCached(t, large.model(t), ort.Options{}))
	if nowAll, nowIdle := ort.CachedGraphs(); nowAll != all || nowIdle != idle {
		t.Errorf("%d graphs, %d of them idle, became %d and %d", all, idle, nowAll, nowIdle)
	}
}

// The weights that idle graphs share count once, as the most bytes that one of them reads.
func TestIdleWeightsCountOnce(t *testing.T) {
	dropIdle(t)
	o := ort.Options{WeightsDir: t.TempDir()}
	path := filepath.Join(o.WeightsDir, "w")
	offset := safetensors(t, path, 1, weights)
	orttest.Settle(t, path)
	row := (&builder{}).in("x", f32, dims{"B", 3}).external("W", "w", offset, 12, 3)
	part := row.node("Mul", []string{"x", "W"}, "y").out("y", f32, dims{"B", 3}).model(t)
	whole := externalLinear(t, "w", offset, 24)
	grown := func(model *onnx.ModelProto, level ort.OptLevel) int {
		before := ort.Cached().IdleBytes
		o.OptLevel = level
		closeSession(t, openCached(t, model, o))
		return ort.Cached().IdleBytes - before
	}
	first, second := grown(part, ort.OptAll), grown(part, ort.OptNone)
	if first-second != 12 {
		t.Errorf("of two graphs with equal weights the first counts %d bytes and the second %d", first, second)
	}
	first, second = grown(whole, ort.OptAll), grown(whole, ort.OptNone)
	if first-second != 24-12 {
		t.Errorf("of two graphs with more weights the first counts %d bytes and the second %d", first, second)
	}
	dropIdle(t)
	if left := ort.Cached().IdleBytes; left != 0 {
		t.Errorf("%d bytes are left of no graph", left)
	}
}

// Many goroutines open, run and close sessions of a few graphs, while others push these out of the cache.
func TestConcurrentCachedSessions(t *testing.T) {
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 60 {
				factor := float32(3000 + i%3)
				if g%4 == 0 {
					factor = float32(4000 + 100*g + i)
				}
				out, err := ort.RunOnce(t.Context(), scaled(t, factor), ort.Options{},
					tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})
				if err != nil || out["y"].Data[1] != 2*factor {
					t.Errorf("factor %v: %v, %v", factor, out, err)
				}
			}
		})
	}
	all.Wait()
}

// A graph that ONNX Runtime rejects is rejected each time, and leaves nothing behind.
func TestRejectedGraphsAreNotCached(t *testing.T) {
	b := (&builder{}).in("x", f32, dims{"B", 2}).node("NoSuchOperator", []string{"x"}, "y").out("y", f32, nil)
	model := b.model(t)
	if n := newGraphs(func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := ort.NewCachedSession(model, ort.Options{}); err == nil {
					t.Error("an unknown operator is accepted")
				}
			})
		}
		all.Wait()
	}); n != 0 {
		t.Errorf("%d rejected graphs are kept", n)
	}
}
