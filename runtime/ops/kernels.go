package ops

import (
	"fmt"

	"promptfed/runtime/graph"
)

// The custom operators of runtime/kernels take float32 only, and widths that are multiples of graph.KernelWidth.
func init() {
	own := func(kind string, inputs int, attrs string, infer func(*infer) error, vjp func(*call) []node) {
		graph.Register(def{Domain: graph.Kernels, Kind: kind, MinInputs: inputs, Attrs: attrs, Infer: infer, VJP: vjp})
	}
	own("BiasQuickGelu", 2, "", sameShape, func(c *call) []node { // a σ(a) for a = x + b
		d := kernel("BiasQuickGeluGrad", nil, c.X(0), c.X(1), c.G())
		return []node{d, d}
	})
	own("BiasQuickGeluGrad", 3, "", sameShape, nil)
	own("LayerNormGrad", 5, "", sameShape, nil)
	own("Attention", 2, "heads int, keys int", inferPacked, func(c *call) []node {
		return []node{kernel("AttentionGrad", c.Attrs, c.X(0), c.X(1), c.Out[1], c.G()), {}}
	})
	own("AttentionGrad", 4, "heads int, keys int", sameShape, nil)
	own("SequenceAttention", 1, "heads int, rows int", inferSequences, each(func(c *call) node {
		return kernel("SequenceAttentionGrad", c.Attrs, c.X(0), c.G())
	}))
	own("SequenceAttentionGrad", 2, "heads int, rows int", sameShape, nil)
}

func kernel(kind string, at graph.Attrs, in ...node) node {
	return in[0].Graph().Apply(graph.Kernels, kind, at, in...)
}

// inferPacked is for query, key and value side by side [n,3w] and spans [n,4]: the sums of values [n,w], and weights
// [n,heads,keys].
func inferPacked(o *infer) error {
	x, ok := o.In[0].Shape().Ints()
	heads, keys := o.Attrs.Int("heads", 0), o.Attrs.Int("keys", 0)
	if !ok || len(x) != 2 || heads < 1 || x[1]%(3*heads) != 0 {
		return fmt.Errorf("packed rows %v of %d heads", o.In[0].Shape(), heads)
	}
	o.SetOutput(1, graph.Static(x[0], heads, keys))
	return o.Set(graph.Static(x[0], x[1]/3))
}

// inferSequences is for query, key and value side by side [n,3w], n possibly symbolic: the sums of values [n,w].
func inferSequences(o *infer) error {
	x, heads, rows := o.In[0].Shape(), o.Attrs.Int("heads", 0), o.Attrs.Int("rows", 0)
	if len(x) != 2 || !x[1].Static() || heads < 1 || x[1].N%(3*heads) != 0 || rows < 1 ||
		x[0].Static() && x[0].N%rows != 0 {
		return fmt.Errorf("rows %v of %d heads in sequences of %d", x, heads, rows)
	}
	return o.Set(graph.Shape{x[0], graph.StaticDim(x[1].N / 3)})
}

// kernelRows reports whether a kernel can take the rows of x.
func kernelRows(x node) bool {
	s := x.Shape()
	return x.Graph().HasKernels() && x.DType() == graph.Float && len(s) > 0 && s[len(s)-1].Static() &&
		s[len(s)-1].N%graph.KernelWidth == 0
}
