package ops_test

import "promptfed/runtime/graph"

func init() {
	gradients(
		ofInputs(graph.Kernels, "BiasQuickGelu", "", nil, []int{5, 32}, []int{32}),
		ofInputs(graph.Kernels, "BiasQuickGelu", "many rows", nil, []int{1100, 16}, []int{16}),
		gradientCase{"LayerNormalization", "kernel", one(func(b *bench) node {
			b.UseKernels()
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 32), b.constant("scale", 32),
				b.constant("bias", 32))[0]
		}), 0},
		gradientCase{"LayerNormalization", "kernel, gain", one(func(b *bench) node {
			b.UseKernels()
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 32), b.x("scale", 32),
				b.constant("bias", 32))[0]
		}), 0},
		gradientCase{"LayerNormalization", "kernel, bias", one(func(b *bench) node {
			b.UseKernels()
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 32), b.constant("scale", 32),
				b.x("bias", 32))[0]
		}), 0},
		gradientCase{"LayerNormalization", "narrower than the kernel", one(func(b *bench) node {
			b.UseKernels()
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 24), b.constant("scale", 24),
				b.constant("bias", 24))[0]
		}), 0},
		packed("", 16, []int64{0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 2, 3, 0, 2, 2, 4, 0, 2, 4, 5}),
		packed("wide heads, rows outside all spans", 64,
			[]int64{1, 4, 0, 0, 1, 4, 0, 0, 1, 2, 3, 4, 1, 2, 1, 2, 2, 4, 2, 4}),
		sequences("", 5, 1, 16),
		sequences("wide heads", 3, 2, 64),
		sequences("medium heads", 6, 2, 32),
		sequences("more rows than a vector", 40, 1, 16),
		packed("rows of a CLIP", 32, []int64{0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0}),
	)
}

// packed tests attention over 5 rows with 2 heads of the given width.
func packed(name string, width int, spans []int64) gradientCase {
	return gradientCase{graph.Kernels + ".Attention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "keys": graph.Attr(16)}
		return b.ApplyN(graph.Kernels, "Attention", at, 2, b.x("x", 5, 6*width), b.ints("spans", spans, 5, 4))[0]
	}), 0}
}

// sequences tests attention over count sequences of rows tokens, with 2 heads of the given width.
func sequences(name string, rows, count, width int) gradientCase {
	return gradientCase{graph.Kernels + ".SequenceAttention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "rows": graph.Attr(rows)}
		return b.Apply(graph.Kernels, "SequenceAttention", at, b.x("x", rows*count, 6*width))
	}), 0}
}
