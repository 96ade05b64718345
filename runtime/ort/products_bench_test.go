package ort_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"promptfed/runtime/kernels"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// BenchmarkProducts compares the operator Product, for each instruction set of this processor, with ONNX Runtime's
// products, both packed, and with as many multiplications and additions in registers (the peak), in turns on one
// thread: 24 matrices of one size, as in a tower. Metrics are medians. The last sizes are those of ViT-B/16's text
// tower.
func BenchmarkProducts(b *testing.B) {
	for _, size := range [][2]int{{256, 256}, {384, 384}, {512, 512}, {512, 2048}, {2048, 512}} {
		for _, rows := range []int{12, 47, 341} {
			b.Run(fmt.Sprintf("%dx%d/rows=%d", size[0], size[1], rows), func(b *testing.B) {
				benchmarkProducts(b, rows, size[0], size[1])
			})
		}
	}
}

func benchmarkProducts(b *testing.B, rows, k, n int) {
	r, dir := rand.New(rand.NewPCG(5, 6)), b.TempDir()
	x := whole(r, rows, k)
	var models []*onnx.ModelProto
	for i := range 24 {
		m := products{x: x, w: whole(r, k, n), alpha: 1, file: fmt.Sprint("w", i)}.model(b, dir)
		m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Shape", Input: []string{"y"},
			Output: []string{"shape"}}) // instead of y, which would be copied
		m.Graph.Output = []*onnx.ValueInfoProto{info("shape", onnx.TensorProto_INT64, dims{2})}
		models = append(models, m)
	}
	sets, sessions, seconds := kernels.InstructionSets(), map[string][]*ort.Session{}, map[string][]float64{}
	names := everyProduct()
	for _, name := range names {
		for _, m := range models {
			o := ort.Options{Prepack: true, Products: name, WeightsDir: dir}
			sessions[name] = append(sessions[name], open(b, m, o))
		}
	}
	flops := 2 * float64(rows*k*n)
	measure := func(name string, run func()) {
		begin := time.Now()
		run()
		seconds[name] = append(seconds[name], time.Since(begin).Seconds())
	}
	for b.Loop() {
		for i := range models {
			for _, name := range names {
				measure(name, func() { run(b, sessions[name][i], tensor.Map{"x": x}) })
			}
			for _, s := range sets {
				measure(s.Name+" peak", func() { s.Peak(int(flops / s.Peak(1))) })
			}
		}
	}
	median := func(build func(i int) float64) float64 {
		var all []float64
		for i := range seconds[names[0]] {
			all = append(all, build(i))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range names {
		b.ReportMetric(median(func(i int) float64 { return flops / seconds[name][i] / 1e9 }), name+"-GFLOP/s")
	}
	for _, s := range sets {
		peak, own := seconds[s.Name+" peak"], seconds[s.Name]
		b.ReportMetric(median(func(i int) float64 { return 100 * peak[i] / own[i] }), s.Name+"-%-of-peak")
	}
}
