package exported_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// A step on a recognised export takes at most 1.1 times as long as one on the converted checkpoint. Bundles take turns,
// and the medians of processor time are compared, since other programs use the machine too. PROMPTFED_STEPS lists
// folders of one model, as in PATH, the converted one first.
func TestStepOfARecognisedExport(t *testing.T) {
	dirs := filepath.SplitList(os.Getenv("PROMPTFED_STEPS"))
	if len(dirs) < 2 {
		t.Skip("PROMPTFED_STEPS names no folders of full size")
	}
	mayRun(t)
	bundle.RegisterFormat(converted.Format(nil))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, classes := range []int{10, 100} {
		var steps []func() time.Duration
		for _, dir := range dirs {
			steps = append(steps, stepOf(t, openBundle(t, dir), classes))
		}
		seconds := make([][]float64, len(dirs))
		for range 31 {
			for i, step := range steps {
				seconds[i] = append(seconds[i], step().Seconds())
			}
		}
		for i := range dirs {
			slices.Sort(seconds[i])
			ratio := seconds[i][15] / seconds[0][15]
			t.Logf("%d classes, %s: %.1f ms, %.2f", classes, filepath.Base(dirs[i]), 1000*seconds[i][15], ratio)
			if ratio > 1.1 {
				t.Errorf("%d classes, %s: %.2f times the step of %s", classes, dirs[i], ratio, dirs[0])
			}
		}
	}
}

// stepOf returns the loss of PromptFL with a prompt of 16 tokens on 32 images, and its gradient, in the way that
// clients run it.
func stepOf(t *testing.T, b *bundle.Bundle, classes int) func() time.Duration {
	names := make([]string, classes)
	for i := range names {
		names[i] = fmt.Sprintf("thing %d", i)
	}
	g := graph.New()
	g.UseKernels(graph.CPUKernels)
	ctx := g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	features := bundletest.Prompts(t, b, g, names, clip.Prompt{Ctx: ctx})
	images := g.Input("images", graph.Float, graph.Static(32, b.Text.EmbedDim))
	logits := images.MatMul(features[0].L2Normalize().T()).MulScalar(100)
	dx := orttest.Gradients(t, graph.CrossEntropy(logits, g.Ints(make([]int, 32)...)), ctx)
	model := orttest.Model(t, graph.Output{Name: "gradient", Node: dx[0]})
	s := orttest.Open(t, model, ort.Options{WeightsDir: b.WeightsDir(), Prepack: true})
	in := tensor.Map{"ctx": tensor.New(16, b.Text.Width), "images": tensor.New(32, b.Text.EmbedDim)}
	for _, x := range in {
		for i := range x.Data {
			x.Data[i] = float32(i%7) / 70
		}
	}
	return func() time.Duration {
		began := processorTime(t)
		if _, err := s.Run(context.Background(), in); err != nil {
			t.Fatal(err)
		}
		return processorTime(t) - began
	}
}

// processorTime returns the processor time of this thread, on which sessions of one thread run.
func processorTime(t *testing.T) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
