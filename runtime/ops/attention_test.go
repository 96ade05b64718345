package ops_test

import "promptfed/runtime/graph"

func init() {
	attention := func(name string, at attrs, mask func(b *bench) node, q, k, v []int) gradientCase {
		return gradientCase{"Attention", name, one(func(b *bench) node {
			in := []node{b.x("q", q...), b.x("k", k...), b.x("v", v...)}
			if mask != nil {
				in = append(in, mask(b))
			}
			return b.op("Attention", at, in...)
		}), 0}
	}
	multi := func(name string, at attrs, sizes ...[]int) gradientCase {
		at["num_heads"] = graph.Attr(2)
		return ofInputs(graph.Microsoft, "MultiHeadAttention", name, at, sizes...)
	}
	wide, heads := []int{2, 3, 8}, []int{2, 2, 4, 4}
	gradients(
		attention("heads", nil, nil, []int{2, 2, 3, 4}, []int{2, 2, 5, 4}, []int{2, 2, 5, 6}),
		attention("flat, one head", attrs{"q_num_heads": graph.Attr(1), "kv_num_heads": graph.Attr(1)}, nil,
			[]int{2, 3, 4}, []int{2, 5, 4}, []int{2, 5, 4}),
		ofInputs(graph.Microsoft, "MultiHeadAttention", "one head", attrs{"num_heads": graph.Attr(1)}, []int{2, 3, 4},
			[]int{2, 5, 4}, []int{2, 5, 4}),
		attention("causal", attrs{"is_causal": graph.Attr(1)}, nil, heads, heads, heads),
		attention("flat, shared heads, scale, mask", attrs{"q_num_heads": graph.Attr(4), "kv_num_heads": graph.Attr(2),
			"scale": graph.Attr(0.3)}, func(b *bench) node { return b.x("mask", 3, 5) }, []int{2, 3, 8}, []int{2, 5, 4},
			[]int{2, 5, 4}),
		attention("boolean mask", attrs{"softcap": graph.Attr(1.5)}, func(b *bench) node {
			return b.ints("mask", []int64{1, 0, 1, 1, 1, 0}, 2, 3).Cast(graph.Bool)
		}, []int{1, 2, 2, 4}, []int{1, 2, 3, 4}, []int{1, 2, 3, 4}),
		gradientCase{"Attention", "one node three times", one(func(b *bench) node {
			x := b.x("x", 2, 2, 3, 4)
			return b.op("Attention", nil, x, x, x)
		}), 0},
		multi("", attrs{}, wide, wide, wide),
		multi("bias and scale", attrs{"scale": graph.Attr(0.4)}, wide, wide, wide, []int{24}),
		multi("addend", attrs{}, wide, wide, wide, nil, nil, []int{2, 2, 3, 3}),
	)
}
