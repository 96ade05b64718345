package ort_test

import (
	"context"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// stepModel has the inputs and outputs of a training step and almost no work: loss [1], grad [16,512] from prompt
// [16,512], image [B,512] and label [B].
func stepModel(t testing.TB) *onnx.ModelProto {
	b := (&builder{}).in("ctx", f32, dims{16, 512}).in("image", f32, dims{"B", 512}).in("label", i64, dims{"B"})
	b.node("Neg", []string{"ctx"}, "grad").out("grad", f32, dims{16, 512}).constant("loss0", []float32{1}, 1)
	b.node("Identity", []string{"loss0"}, "loss").out("loss", f32, dims{1})
	return b.model(t)
}

func stepInputs() tensor.Map {
	return tensor.Map{"ctx": tensor.New(16, 512), "image": tensor.New(32, 512), "label": tensor.OfInts(make([]int64,
		32), 32)}
}

// BenchmarkRun measures the cost of a step without its arithmetic: checks, native values, output memory, the call.
func BenchmarkRun(b *testing.B) {
	ended, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": ended} {
		b.Run(name, func(b *testing.B) {
			s, in := open(b, stepModel(b), ort.Options{}), stepInputs()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Run(ctx, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewSession(b *testing.B) {
	model := linear(b)
	for b.Loop() {
		s, err := ort.NewSession(model, ort.Options{})
		goldentest.NoError(b, err)
		s.Close()
	}
}
