package ops_test

import (
	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"LayerNormalization", nil, []any{"S,3", "3"}, "[S,3]"},
		shapeCase{"LayerNormalization", attrs{"axis": graph.Attr(1)}, []any{"S,2,3", "3"}, "LayerNormalization(" +
			"[S,2,3], [3]): its scale is [3] and its normalised axes are [2 3]: expand the scale, because ONNX " +
			"Runtime's CUDA provider reads beyond a smaller one"},
	)
	layer := func(name string, at attrs, x, scale []int, bias bool) gradientCase {
		return gradientCase{"LayerNormalization", name, one(func(b *bench) node {
			in := []node{b.x("x", x...), b.x("scale", scale...)}
			if bias {
				in = append(in, b.x("bias", scale...))
			}
			return b.op("LayerNormalization", at, in...)
		}), 0}
	}
	batch := func(name string, sizes ...int) gradientCase {
		return gradientCase{"BatchNormalization", name, one(func(b *bench) node {
			x := b.x("x", sizes...)
			scale, bias := b.x("scale", 3), b.x("bias", 3)
			mean, deviation := b.constant("mean", 3), b.constant("deviation", 3)
			return b.op("BatchNormalization", attrs{"epsilon": graph.Attr(0.1)}, x, scale, bias, mean.AddScalar(0.3),
				deviation.Square())
		}), 0}
	}
	gradients(
		layer("", nil, []int{2, 3, 5}, []int{5}, true),
		layer("no bias", attrs{"epsilon": graph.Attr(0.3)}, []int{symB, 5}, []int{5}, false),
		layer("two axes", attrs{"axis": graph.Attr(-2)}, []int{2, 3, 5}, []int{3, 5}, true),
		layer("all axes", attrs{"axis": graph.Attr(0)}, []int{3, 5}, []int{3, 5}, true),
		batch("", 2, 3, 4, 4), batch("rank 2", symB, 3), batch("rank 3", 2, 3, 4),
		ofInputs(graph.Standard, "InstanceNormalization", "", nil, []int{symB, 3, 4, 5}, []int{3}, []int{3}),
		ofInputs(graph.Standard, "InstanceNormalization", "one axis", attrs{"epsilon": graph.Attr(0.1)}, []int{2, 3, 7},
			[]int{3}, []int{3}),
		ofInputs(graph.Standard, "RMSNormalization", "", nil, []int{2, 3, 6}, []int{6}),
		ofInputs(graph.Standard, "RMSNormalization", "two axes", attrs{"axis": graph.Attr(1),
			"epsilon": graph.Attr(0.1)},
			[]int{2, 3, 6}, []int{3, 6}),
		ofInputs(graph.Standard, "SimplifiedLayerNormalization", "", nil, []int{2, 3, 6}, []int{6}),
		ofInputs(graph.Standard, "LpNormalization", "2", attrs{"axis": graph.Attr(1)}, []int{3, 4, 2}),
		gradientCase{"LpNormalization", "1", one(func(b *bench) node {
			return b.op("LpNormalization", attrs{"p": graph.Attr(1)}, b.x("x", 3, 4))
		}), small},
		ofInputs(graph.Standard, "MeanVarianceNormalization", "", nil, []int{2, 3, 4, 5}),
		ofInputs(graph.Standard, "MeanVarianceNormalization", "axes", attrs{"axes": graph.Attr([]int{1, 2})},
			[]int{2, 3, 4, 5}),
		ofInputs(graph.Microsoft, "SkipLayerNormalization", "", attrs{"epsilon": graph.Attr(1e-5)}, []int{2, 3, 8},
			[]int{2, 3, 8}, []int{8}, []int{8}, []int{8}),
		ofInputs(graph.Microsoft, "SkipLayerNormalization", "without beta", attrs{"epsilon": graph.Attr(1e-5)},
			[]int{2, 3, 8}, []int{2, 3, 8}, []int{8}),
		gradientCase{"com.microsoft.SkipLayerNormalization", "with its sum", func(b *bench) []node {
			y := b.ApplyN(graph.Microsoft, "SkipLayerNormalization", attrs{"epsilon": graph.Attr(1e-5)}, 4,
				b.x("x", 2, 3, 8), b.x("skip", 2, 3, 8), b.x("gamma", 8), node{}, b.x("bias", 8))
			return []node{y[0], y[3].Square()}
		}, 0},
	)
}
