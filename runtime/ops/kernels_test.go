package ops_test

import "promptfed/runtime/graph"

func init() {
	gradients(
		ofInputs(graph.Kernels, "BiasQuickGelu", "", nil, []int{5, 32}, []int{32}),
		ofInputs(graph.Kernels, "BiasQuickGelu", "many rows", nil, []int{1100, 16}, []int{16}),
		gradientCase{"LayerNormalization", "kernel", one(func(b *bench) node {
			b.UseKernels()
			return b.op("LayerNormalization", nil, b.x("x", 3, 32), b.constant("scale", 32), b.constant("bias", 32))
		}), 0},
		packed("", 16, []int64{0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 2, 3, 0, 2, 2, 4, 0, 2, 4, 5}),
		packed("wide heads, rows that nobody sees", 64, []int64{1, 4, 0, 0, 1, 4, 0, 0, 1, 2, 3, 4, 1, 2, 1, 2, 2, 4, 2, 4}),
		packed("rows of a CLIP", 32, []int64{0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0}),
	)
}

// packed is attention over 5 rows of 2 heads of that width.
func packed(name string, width int, spans []int64) gradientCase {
	return gradientCase{graph.Kernels + ".Attention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "keys": graph.Attr(16)}
		return b.ApplyN(graph.Kernels, "Attention", at, 2, b.x("x", 5, 6*width), b.ints("spans", spans, 5, 4))[0]
	}), 0}
}
