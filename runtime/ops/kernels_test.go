package ops_test

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

func init() {
	gradients(
		ofInputs(graph.Kernels, "BiasQuickGelu", "", nil, []int{5, 32}, []int{32}),
		ofInputs(graph.Kernels, "BiasQuickGelu", "many rows", nil, []int{1100, 16}, []int{16}),
		layerNorm("", false, false),
		layerNorm("gain", true, false),
		layerNorm("bias", false, true),
		gradientCase{"LayerNormalization", "kernel of the gradient", one(func(b *bench) node {
			b.UseKernels(graph.DeviceKernels)
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 32), b.constant("scale", 32),
				b.constant("bias", 32))[0]
		}), 0},
		gradientCase{"LayerNormalization", "narrower than the kernel", one(func(b *bench) node {
			b.UseKernels(graph.DeviceKernels)
			return b.ApplyN(graph.Standard, "LayerNormalization", nil, 3, b.x("x", 3, 24), b.constant("scale", 24),
				b.constant("bias", 24))[0]
		}), 0},
		ofInputs(graph.Kernels, "AddSameShape", "", nil, []int{2, 3, 5}, []int{2, 3, 5}),
		gradientCase{graph.Kernels + ".L2Normalize", "", one(func(b *bench) node {
			return b.ApplyN(graph.Kernels, "L2Normalize", nil, 2, b.x("x", 3, 2, 32))[0]
		}), 0},
		gradientCase{graph.Kernels + ".CrossEntropy", "", one(func(b *bench) node {
			label := b.ints("label", []int64{2, 0, 18}, 3)
			return b.ApplyN(graph.Kernels, "CrossEntropy", nil, 2, b.x("x", 3, 19), label)[0]
		}), 0},
		packed("", 16, []int64{0, 1, 0, 0, 0, 0, 2, 0, 0, 1, 0, 2, 2, 3, 2, 0, 2, 2, 4, 3, 0, 2, 4, 5, 4}),
		packed("wide heads, rows outside all spans", 64,
			[]int64{1, 4, 0, 0, 0, 1, 4, 0, 0, 1, 1, 2, 3, 4, 2, 1, 2, 1, 2, 3, 2, 4, 2, 4, 4}),
		sequences("", 5, 1, 16),
		sequences("wide heads", 3, 2, 64),
		sequences("medium heads", 6, 2, 32),
		sequences("more rows than a vector", 40, 1, 16),
		packed("rows of a CLIP", 32,
			[]int64{0, 5, 0, 0, 0, 0, 5, 0, 0, 1, 0, 5, 0, 0, 2, 0, 5, 0, 0, 3, 0, 5, 0, 0, 4}),
		gradientCase{graph.Kernels + ".Attention", "with what devices need", one(func(b *bench) node {
			b.UseKernels(graph.DeviceKernels)
			spans := [][5]int{{0, 1, 1, 1, 0}, {0, 2, 2, 2, 1}, {0, 2, 2, 3, 2}, {0, 2, 3, 5, 4}}
			return nn.PackedAttention(b.x("x", 5, 6*64), spans, 2)
		}), 0},
		packed("three queries, two of one row", 32, []int64{0, 3, 4, 5, 4, 0, 2, 0, 0, 1, 0, 3, 3, 4, 4}),
		packed("four queries with the same first span", 16,
			[]int64{0, 3, 3, 4, 3, 0, 3, 4, 5, 0, 0, 3, 1, 2, 1, 0, 3, 0, 0, 3}),
	)
}

// layerNorm tests layer norm of rows, and the gradient of its gain or bias.
func layerNorm(name string, gain, bias bool) gradientCase {
	return gradientCase{graph.Kernels + ".LayerNorm", name, one(func(b *bench) node {
		vector := func(name string, learned bool) node {
			if learned {
				return b.x(name, 32)
			}
			return b.constant(name, 32)
		}
		b.UseKernels(graph.DeviceKernels)
		at := attrs{"epsilon": graph.Attr(float32(1e-3))}
		return b.ApplyN(graph.Kernels, "LayerNorm", at, 3, b.x("x", 3, 2, 32), vector("scale", gain),
			vector("bias", bias))[0]
	}), 0}
}

// packed tests attention of some queries over 5 rows with 2 heads of the given width.
func packed(name string, width int, spans []int64) gradientCase {
	return gradientCase{graph.Kernels + ".Attention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "keys": graph.Attr(16)}
		given := b.ints("spans", spans, len(spans)/5, 5)
		return b.ApplyN(graph.Kernels, "Attention", at, 2, b.x("x", 5, 6*width), given)[0]
	}), 0}
}

// sequences tests attention over count sequences of rows tokens, with 2 heads of the given width.
func sequences(name string, rows, count, width int) gradientCase {
	return gradientCase{graph.Kernels + ".SequenceAttention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "rows": graph.Attr(rows)}
		return b.Apply(graph.Kernels, "SequenceAttention", at, b.x("x", rows*count, 6*width))
	}), 0}
}
