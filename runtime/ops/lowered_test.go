package ops_test

import "promptfed/runtime/graph"

// loweredCases are of operators whose gradient is that of other operators, and of activations.
func loweredCases() []ruleCase {
	unary := func(kind string, at graph.Attrs) ruleCase {
		return ruleCase{kind, "", one(func(b *bench) node { return b.op(kind, at, b.x("x", symB, 5)) }), small}
	}
	within := func(kind string, scale, shift float64) ruleCase { // the inputs are from -2 to 2.2
		return ruleCase{kind, "", one(func(b *bench) node {
			return b.op(kind, nil,
				b.x("x", 3, 5).Scale(scale).Shift(shift))
		}), small}
	}
	out := []ruleCase{unary("Selu", nil), unary("Celu", graph.Attrs{"alpha": graph.Attr(float32(0.7))}), unary("Mish", nil),
		unary("Softsign", nil),
		unary("Gelu", nil), unary("Gelu", graph.Attrs{"approximate": graph.Attr("tanh")}), unary("Sinh", nil), unary("Cosh", nil),
		unary("Atan", nil), unary("Asinh", nil), within("Tan", 0.5, 0), within("Asin", 0.4, 0),
		within("Acos", 0.4, 0), within("Atanh", 0.4, 0), within("Acosh", 0.5, 2.5), unary("ThresholdedRelu",
			graph.Attrs{"alpha": graph.Attr(float32(0.33))})}
	for _, at := range []graph.Attrs{nil, {"alpha": graph.Attr(float32(1.7))}} {
		out = append(out, ruleCase{"Swish", "", one(func(b *bench) node { return b.op("Swish", at, b.x("x", 3, 5)) }),
			0})
	}
	norm := func(kind, name string, at graph.Attrs, sizes ...[]int) ruleCase {
		return ruleCase{kind, name, one(func(b *bench) node {
			in := []node{b.x("x", sizes[0]...)}
			for i, s := range sizes[1:] {
				in = append(in, b.x(string(rune('a'+i)), s...))
			}
			return b.op(kind, at, in...)
		}), 0}
	}
	out = append(out,
		norm("InstanceNormalization", "", nil, []int{symB, 3, 4, 5}, []int{3}, []int{3}),
		norm("InstanceNormalization", "one axis", graph.Attrs{"epsilon": graph.Attr(float32(0.1))}, []int{2, 3, 7}, []int{3},
			[]int{3}),
		norm("GroupNormalization", "per channel", graph.Attrs{"num_groups": graph.Attr(2)}, []int{2, 6, 3, 2}, []int{6}, []int{6}),
		norm("GroupNormalization", "per group", graph.Attrs{"num_groups": graph.Attr(2)}, []int{2, 6, 3, 2}, []int{2}, []int{2}),
		norm("RMSNormalization", "", nil, []int{2, 3, 6}, []int{6}),
		norm("RMSNormalization", "two axes", graph.Attrs{"axis": graph.Attr(1), "epsilon": graph.Attr(float32(0.1))}, []int{2, 3, 6},
			[]int{3, 6}),
		norm("SimplifiedLayerNormalization", "", nil, []int{2, 3, 6}, []int{6}),
		norm("LpNormalization", "2", graph.Attrs{"axis": graph.Attr(1)}, []int{3, 4, 2}),
		ruleCase{"LpNormalization", "1", one(func(b *bench) node {
			return b.op("LpNormalization", graph.Attrs{"p": graph.Attr(1)}, b.x("x", 3, 4))
		}), small},
		norm("MeanVarianceNormalization", "", nil, []int{2, 3, 4, 5}),
		norm("MeanVarianceNormalization", "axes", graph.Attrs{"axes": graph.Attr([]int{1, 2})}, []int{2, 3, 4, 5}),
		norm("DepthToSpace", "DCR", graph.Attrs{"blocksize": graph.Attr(2)}, []int{symB, 8, 2, 3}),
		norm("DepthToSpace", "CRD", graph.Attrs{"blocksize": graph.Attr(2), "mode": graph.Attr("CRD")}, []int{2, 8, 2, 3}),
		norm("SpaceToDepth", "", graph.Attrs{"blocksize": graph.Attr(2)}, []int{symB, 2, 4, 6}),
		ruleCase{"LpPool", "", one(func(b *bench) node {
			return b.op("LpPool", graph.Attrs{"kernel_shape": graph.Attr([]int{2, 3}), "strides": graph.Attr([]int{2, 1}), "pads": graph.Attr([]int{0, 1,
				1, 1}), "p": graph.Attr(3)}, b.positive("x", 2, 2, 5, 4))
		}), 0},
		ruleCase{"GlobalMaxPool", "", one(func(b *bench) node {
			return b.op("GlobalMaxPool", nil, b.x("x", symB, 3, 4,
				5))
		}), small},
	)
	return append(out, attentionCases()...)
}

func attentionCases() []ruleCase {
	attention := func(name string, at graph.Attrs, mask func(b *bench) node, q, k, v []int) ruleCase {
		return ruleCase{"Attention", name, one(func(b *bench) node {
			in := []node{b.x("q", q...), b.x("k", k...), b.x("v", v...)}
			if mask != nil {
				in = append(in, mask(b))
			}
			return b.op("Attention", at, in...)
		}), 0}
	}
	ms := func(kind, name string, at graph.Attrs, sizes ...[]int) ruleCase {
		return ruleCase{graph.Microsoft + "." + kind, name, one(func(b *bench) node {
			var in []node
			for i, s := range sizes {
				if s == nil {
					in = append(in, node{})
					continue
				}
				in = append(in, b.x(string(rune('a'+i)), s...))
			}
			return b.Apply(graph.Microsoft, kind, at, in...)
		}), 0}
	}
	wide := []int{2, 3, 8}
	return []ruleCase{
		attention("heads", nil, nil, []int{2, 2, 3, 4}, []int{2, 2, 5, 4}, []int{2, 2, 5, 6}),
		attention("causal", graph.Attrs{"is_causal": graph.Attr(1)}, nil, []int{2, 2, 4, 4}, []int{2, 2, 4, 4}, []int{2, 2, 4, 4}),
		attention("flat, shared heads, scale, mask", graph.Attrs{"q_num_heads": graph.Attr(4), "kv_num_heads": graph.Attr(2),
			"scale": graph.Attr(float32(0.3))},
			func(b *bench) node { return b.x("mask", 3, 5) }, []int{2, 3, 8}, []int{2, 5, 4}, []int{2, 5, 4}),
		attention("boolean mask", graph.Attrs{"softcap": graph.Attr(float32(0))}, func(b *bench) node {
			return b.ints("mask", []int64{1, 0, 1, 1, 1, 0}, 2, 3).Cast(graph.Bool)
		}, []int{1, 2, 2, 4}, []int{1, 2, 3, 4}, []int{1, 2, 3, 4}),
		{"Attention", "one node three times", one(func(b *bench) node {
			x := b.x("x", 2, 2, 3,
				4)
			return b.op("Attention", nil, x, x, x)
		}), 0},
		ms("MultiHeadAttention", "", graph.Attrs{"num_heads": graph.Attr(2)}, wide, wide, wide),
		ms("MultiHeadAttention", "bias and scale", graph.Attrs{"num_heads": graph.Attr(2), "scale": graph.Attr(float32(0.4))}, wide, wide, wide,
			[]int{24}),
		ms("MultiHeadAttention", "addend", graph.Attrs{"num_heads": graph.Attr(2)}, wide, wide, wide, nil, nil, []int{2, 2, 3, 3}),
		ms("SkipLayerNormalization", "", graph.Attrs{"epsilon": graph.Attr(float32(1e-5))}, wide, wide, []int{8}, []int{8},
			[]int{8}),
		ms("SkipLayerNormalization", "without beta", graph.Attrs{"epsilon": graph.Attr(float32(1e-5))}, wide, wide, []int{8}),
		ms("FastGelu", "", nil, wide), ms("FastGelu", "bias", nil, wide, []int{8}), ms("BiasGelu", "", nil, wide,
			[]int{8}),
	}
}

// selectCases are of operators that pick, repeat or resample elements.
func selectCases() []ruleCase {
	resize := func(name string, scales []float32, sizes []int, at graph.Attrs, x ...int) ruleCase {
		return ruleCase{"Resize", name, one(func(b *bench) node {
			in := []node{b.x("x", x...), {}}
			if scales != nil {
				in = append(in, b.Const(floats(scales)))
			} else {
				in = append(in, node{}, b.Ints(sizes...))
			}
			return b.op("Resize", at, in...)
		}), 0}
	}
	mode := func(m, coordinate string) graph.Attrs {
		return graph.Attrs{"mode": graph.Attr(m), "coordinate_transformation_mode": graph.Attr(coordinate)}
	}
	pad := func(m string) ruleCase {
		return ruleCase{"Pad", m, one(func(b *bench) node {
			return b.op("Pad", graph.Attrs{"mode": graph.Attr(m)}, b.x("x", 2, symB, 4, 5), b.Ints(0, 0, 2, 1, 0, 0, 1, 3))
		}), 0}
	}
	pool := func(name string, at graph.Attrs, x ...int) ruleCase {
		return ruleCase{"AveragePool", name, one(func(b *bench) node {
			return b.op("AveragePool", at,
				b.x("x", x...))
		}), 0}
	}
	three, two, ones := []int{3, 3}, []int{2, 2}, []int{1, 1, 1, 1}
	return []ruleCase{
		resize("nearest up", []float32{1, 1, 2, 3}, nil, graph.Attrs{"mode": graph.Attr("nearest"),
			"coordinate_transformation_mode": graph.Attr("asymmetric"), "nearest_mode": graph.Attr("floor")}, symB, 2, 3, 4),
		resize("nearest down", nil, []int{2, 2, 3, 2}, mode("nearest", "half_pixel"), 2, 2, 5, 4),
		resize("linear", nil, []int{2, 2, 9, 3}, mode("linear", "pytorch_half_pixel"), 2, 2, 5, 4),
		resize("linear, corners", nil, []int{2, 2, 3, 7}, mode("linear", "align_corners"), 2, 2, 5, 4),
		resize("cubic", nil, []int{2, 2, 9, 3}, graph.Attrs{"mode": graph.Attr("cubic"), "cubic_coeff_a": graph.Attr(float32(-0.75)),
			"coordinate_transformation_mode": graph.Attr("half_pixel")}, 2, 2, 5, 4),
		resize("cubic, scales", []float32{1, 1, 1.6, 0.7}, nil, graph.Attrs{"mode": graph.Attr("cubic"), "exclude_outside": graph.Attr(1)}, 2,
			2, 5, 4),
		resize("antialias", nil, []int{2, 2, 3, 2}, graph.Attrs{"mode": graph.Attr("linear"), "antialias": graph.Attr(1)}, 2, 2, 7, 6),
		resize("axes", nil, []int{5, 6}, graph.Attrs{"mode": graph.Attr("linear"), "axes": graph.Attr([]int{2, 3})}, 2, 2, 3, 4),
		pad("reflect"), pad("edge"), pad("wrap"),
		pool("pads that do not count", graph.Attrs{"kernel_shape": graph.Attr(three), "strides": graph.Attr(two), "pads": graph.Attr(ones)}, symB, 2, 7, 6),
		pool("ceil", graph.Attrs{"kernel_shape": graph.Attr(two), "strides": graph.Attr(two), "ceil_mode": graph.Attr(1)}, 2, 2, 5, 6),
		pool("ceil and pads that count", graph.Attrs{"kernel_shape": graph.Attr(three), "strides": graph.Attr(two), "pads": graph.Attr(ones),
			"ceil_mode": graph.Attr(1), "count_include_pad": graph.Attr(1)}, 2, 2, 6, 8),
		pool("ceil and pads that do not count", graph.Attrs{"kernel_shape": graph.Attr(three), "strides": graph.Attr(two), "pads": graph.Attr(ones),
			"ceil_mode": graph.Attr(1)}, 2, 2, 6, 8),
		pool("SAME_UPPER", graph.Attrs{"kernel_shape": graph.Attr(three), "strides": graph.Attr(two), "auto_pad": graph.Attr("SAME_UPPER")}, 2, 2, 6, 5),
		{"Conv", "SAME_LOWER", one(func(b *bench) node {
			return b.op("Conv", graph.Attrs{"strides": graph.Attr(two), "auto_pad": graph.Attr("SAME_LOWER")}, b.x("x", 2, 3, 6, 5),
				b.x("w", 2, 3, 3, 2))
		}), 0},
		{"MaxPool", "SAME_UPPER", one(func(b *bench) node {
			return b.op("MaxPool", graph.Attrs{"kernel_shape": graph.Attr(three), "strides": graph.Attr(two), "auto_pad": graph.Attr("SAME_UPPER")},
				b.x("x", 2, 2, 6, 5))
		}), small},
		{"TopK", "", func(b *bench) []node {
			return b.ApplyN(graph.Standard, "TopK", graph.Attrs{"axis": graph.Attr(1)}, 2, b.x("x", symB, 6), b.Ints(3))[:1]
		}, small},
		{"ReduceProd", "", one(func(b *bench) node {
			return b.op("ReduceProd", graph.Attrs{"keepdims": graph.Attr(0)}, b.x("x", symB, 4, 3), b.Ints(1))
		}), small},
		{"ReduceProd", "all, with a zero", one(func(b *bench) node {
			x := b.x("x", 2, 3)
			b.feeds["x"].Data[1] = 0
			return b.op("ReduceProd", nil, x)
		}), small},
		{"ReduceProd", "two zeros in a row", one(func(b *bench) node {
			x := b.x("x", 2, 3)
			b.feeds["x"].Data[1], b.feeds["x"].Data[2] = 0, 0
			return b.op("ReduceProd", nil, x, b.Ints(1))
		}), small},
		{"ReduceLogSum", "", one(func(b *bench) node {
			return b.op("ReduceLogSum", nil, b.positive("x", symB, 4),
				b.Ints(1))
		}), 0},
		{"Mod", "fmod", one(func(b *bench) node {
			return b.op("Mod", graph.Attrs{"fmod": graph.Attr(1)}, b.x("x", 3, 4),
				b.positive("m", 3, 4))
		}), 1e-3},
		{"ReverseSequence", "", one(func(b *bench) node {
			return b.op("ReverseSequence", graph.Attrs{"batch_axis": graph.Attr(0), "time_axis": graph.Attr(1)}, b.x("x", 2, 4, 3),
				b.Ints(3, 4))
		}), 0},
		{"Einsum", "ellipsis", one(func(b *bench) node {
			return b.op("Einsum", graph.Attrs{"equation": graph.Attr("...ij,jk->...ik")}, b.x("x", symB, 2, 3, 4), b.x("w", 4, 5))
		}), 0},
		{"Einsum", "implicit output", one(func(b *bench) node {
			return b.op("Einsum", graph.Attrs{"equation": graph.Attr("bi,ij")}, b.x("x", 3, 4), b.x("w", 4, 5))
		}), 0},
	}
}
