package ops

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

// The custom operators of runtime/kernels take float32 only, and widths that are multiples of graph.KernelWidth.
func init() {
	own := func(kind string, inputs, outputs int, attrs string, infer func(*infer) error, vjp func(*call) []node) {
		graph.Register(def{Domain: graph.Kernels, Kind: kind, MinInputs: inputs, Attrs: attrs, VJP: vjp,
			Infer: func(o *graph.Inference) error {
				if len(o.Out) != outputs {
					return fmt.Errorf("needs %d outputs, has %d", outputs, len(o.Out))
				}
				return infer(o)
			}})
	}

	own("BiasQuickGelu", 2, 1, "", sameShape, func(c *call) []node { // a σ(a) for a = x + b
		d := kernel("BiasQuickGeluGrad", nil, c.X(0), c.X(1), c.G())
		return []node{d, d}
	})

	own("BiasQuickGeluGrad", 3, 1, "", sameShape, nil)
	own("LayerNorm", 3, 3, "epsilon float", inferLayerNorm, layerNormVJP)
	own("LayerNormGrad", 5, 1, "", sameShape, nil)
	own("AddSameShape", 2, 1, "", sameShape, func(c *call) []node { return []node{c.G(), c.G()} })
	own("L2Normalize", 1, 2, "", ranked(func(o *infer, x graph.Shape) error { // x/|x| of rows, and 1/|x|
		if len(x) > 0 {
			x[len(x)-1] = graph.StaticDim(1)
		}
		o.SetOutput(1, x)
		return sameShape(o)
	}), func(c *call) []node { return []node{kernel("L2NormalizeGrad", nil, c.Y(), c.Out[1], c.G())} })

	own("L2NormalizeGrad", 3, 1, "", sameShape, nil)
	own("CrossEntropy", 2, 2, "", func(o *infer) error { // the mean of -log softmax(x)[label], and its gradient
		o.SetOutput(1, o.In[0].Shape())
		return o.Set(graph.Shape{})
	}, func(c *call) []node {
		if g := c.G(); g != g.ScalarLike(1) {
			return []node{c.Out[1].Mul(g), {}}
		}
		return []node{c.Out[1], {}}
	})

	own("Attention", 2, 2, "heads int, keys int", inferPacked, func(c *call) []node {
		in := []node{c.X(0), c.X(1), c.Out[1], c.G()}
		if len(c.In) > 2 { // a device needs more
			in = append(in, c.Y(), c.X(2))
		}
		return []node{kernel("AttentionGrad", c.Attrs, in...), {}, {}}[:len(c.In)]
	})
	own("AttentionGrad", 4, 1, "heads int, keys int", sameShape, nil)
	own("SequenceAttention", 1, 1, "heads int, rows int", inferSequences, each(func(c *call) node {
		return kernel("SequenceAttentionGrad", c.Attrs, c.X(0), c.G())
	}))
	own("SequenceAttentionGrad", 2, 1, "heads int, rows int", sameShape, nil)
}

// AddSameShape returns a + b. It is a kernel where both have the same shape: only such sums can become part of the
// product or of the gradient of a layer norm that computes one of the two (kernels.RewriteProducts).
func AddSameShape(a, b node) node {
	s := a.Shape()
	own := a.Graph().HasKernels(graph.DeviceKernels)
	if own && a.DType() == graph.Float && len(s) > 0 && slices.Equal(s, b.Shape()) {
		return kernel("AddSameShape", nil, a, b)
	}
	return a.Add(b)
}

func kernel(kind string, at graph.Attrs, in ...node) node {
	return in[0].Graph().Apply(graph.Kernels, kind, at, in...)
}

// inferPacked is for query, key and value side by side [n,3w] and spans [m,5]: the sums of values [m,w], and weights
// [m,heads,keys].
func inferPacked(o *infer) error {
	x, ok := o.In[0].Shape().Ints()
	spans, known := o.In[1].Shape().Ints()
	heads, keys := o.Attrs.Int("heads", 0), o.Attrs.Int("keys", 0)
	if !ok || !known || len(x) != 2 || len(spans) != 2 || heads < 1 || x[1]%(3*heads) != 0 {
		return fmt.Errorf("packed rows %v of %d heads, spans %v", o.In[0].Shape(), heads, o.In[1].Shape())
	}

	o.SetOutput(1, graph.Static(spans[0], heads, keys))
	return o.Set(graph.Static(spans[0], x[1]/3))
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
