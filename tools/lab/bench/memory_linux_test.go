package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
)

// The resident memory of a step grows by 0.4 to 1.3 times what spec.StepMemory tells: for prompts of a client, of an
// image and of a class, for the image tower, and with chunks of the classes and parts of the batch. Memory that the
// steps before left, and threads that wait on a busy machine, make the growth smaller, so the largest of two counts, or
// of six where two are too small. Before a step, everything that nobody uses is released, and in a step Go collects its
// garbage often, so that neither depends on when the collector runs.
func TestStepMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	text := clip.TextArch{Width: 128, Layers: 4, Heads: 2, Context: 77, EmbedDim: 128}
	vision := clip.VisionArch{Width: 128, Layers: 4, Heads: 2, Patch: 16, Image: 224, EmbedDim: 128}
	tower, err := randomTower("random", text, vision, t.TempDir())
	goldentest.NoError(t, err)
	tower.tokens = nil
	oneTemplate := map[string]any{"ensemble": []string{}}
	for place, c := range []struct {
		method      string
		options     map[string]any
		set, images int
		memory      int // MiB
	}{
		{"promptfl", nil, 2, 8, 0}, {"promptfl", nil, 2, 8, 100}, {"fedotp", nil, 2, 8, 0}, {"fedpha", nil, 2, 8, 200},
		{"promptfl", map[string]any{"class_specific": true}, 1, 8, 0},
		{"cocoop", nil, 0, 64, 0}, {"cocoop", nil, 1, 16, 100}, {"cocoop", nil, 2, 1, 0}, {"cocoop", nil, 2, 2, 100},
		{"promptsrc", oneTemplate, 0, 32, 0}, {"promptsrc", oneTemplate, 2, 16, 200}, {"fedvpt", nil, 0, 32, 0},
	} {
		if !busytest.Part(place, 3) {
			continue
		}
		p := protocol{method: c.method, options: c.options, classes: sets[c.set].classes.Names(), batch: c.images,
			clients: 1, participation: 1, rounds: 3, testEvery: 3}
		e, err := p.describe()
		goldentest.NoError(t, err)
		e.Training.Memory = c.memory << 20
		data := examples{}.of(tower.Task(), 0, "train", make([]int64, c.images), e.Reads(tower))
		e.Clients = []*spec.Client{{Backbone: tower, Train: data, Test: data}}
		var before, grown int64
		trained := func(i message.Instruction, _ int) {
			if i.Kind != message.Train {
				return
			}
			if before > 0 { // the first step compiles
				grown = max(grown, peakResident()-before)
			}
			released(t)
			if before, err = held(); err != nil {
				t.Error(err)
			}
			resetPeak()
		}
		task := e.Task(e.Clients[0])
		s := method.ScopeOf(e.Method, task)
		s.Graph().UseKernels(graph.CPUKernels)
		loss := e.Method.Loss(s, e.Method.Logits(s))
		m, err := spec.MemoryOf(tower, e.Classes, e.Training.Memory, loss)
		goldentest.NoError(t, err)
		told := m.Bytes(m.StepRows(e.Training, loss))
		for range 3 {
			before = 0
			if _, err = engine.Run(t.Context(), e, engine.Settings{Workers: 1, OnTurn: trained, Client: client.Settings{
				PrefixBytes: -1, Session: ort.Options{IntraThreads: 2, Prepack: true}}}); err != nil {
				t.Fatal(err)
			}
			if float64(grown) >= 0.4*float64(told) {
				break
			}
		}
		ratio := float64(grown) / float64(told)
		line := fmt.Sprintf("%v: %.0f MB, %.2f times what is told", c, float64(grown)/1e6, ratio)
		if t.Log(line); !(ratio >= 0.4 && ratio <= 1.3) {
			t.Error(line)
		}
	}
}

// released waits until the collector has released what nobody uses, and has called the cleanups of it.
func released(t *testing.T) {
	for range 2 { // a cleanup may drop further values
		var called atomic.Bool
		runtime.AddCleanup(&[1 << 10]byte{}, func(called *atomic.Bool) { called.Store(true) }, &called)
		busytest.Until(t, "cleanups", func() bool { runtime.GC(); return called.Load() })
	}
}
