package ort_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// BenchmarkProducts compares the operator Product with ONNX Runtime's products, both packed, on one thread: 24 matrices
// of one size in turn, as in a tower. The last sizes are those of ViT-B/16's text tower.
func BenchmarkProducts(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, size := range [][2]int{{256, 256}, {384, 384}, {512, 512}, {512, 2048}, {2048, 512}} {
		for _, rows := range []int{12, 47, 341} {
			for name, plain := range map[string]bool{"own": false, "onnxruntime": true} {
				b.Run(fmt.Sprintf("%dx%d/rows=%d/%s", size[0], size[1], rows, name), func(b *testing.B) {
					dir := b.TempDir()
					x := whole(r, rows, size[0])
					var sessions []*ort.Session
					for i := range 24 {
						p := products{x: x, w: whole(r, size[0], size[1]), alpha: 1, file: fmt.Sprint("w", i)}
						m := p.model(b, dir)
						m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Shape", Input: []string{"y"},
							Output: []string{"shape"}}) // instead of y, which would be copied
						m.Graph.Output = []*onnx.ValueInfoProto{info("shape", onnx.TensorProto_INT64, dims{2})}
						sessions = append(sessions, open(b, m, ort.Options{Prepack: true, PlainProducts: plain,
							WeightsDir: dir}))
					}
					for b.Loop() {
						for _, s := range sessions {
							run(b, s, tensor.Map{"x": x})
						}
					}
					flops := 2 * 24 * float64(rows) * float64(size[0]) * float64(size[1])
					b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
