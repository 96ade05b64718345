package ops

import (
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

type (
	node  = graph.Node
	call  = graph.Backward
	infer = graph.Inference
	def   = graph.Def
)

var sameShape = graph.SameShape

// unary defines a function of each element of the first input, with its gradient from input, output and output
// gradient.
func unary(kind string, vjp func(x, y, dy node) node) def {
	return def{Kind: kind, MinInputs: 1, Infer: sameShape, VJP: func(c *call) []node {
		return []node{vjp(c.X(0), c.Y(), c.G())}
	}}
}

func nonSmooth(d def) def { d.NonSmooth = true; return d }

// microsoft puts an operator into the domain of ONNX Runtime.
func microsoft(d def) def { d.Domain = graph.Microsoft; return d }

// ranked is a shape rule that does nothing if the rank of the first input is not known; in is a copy of its shape.
func ranked(rule func(o *infer, in graph.Shape) error) func(*infer) error {
	return func(o *infer) error {
		if in := slices.Clone(o.In[0].Shape()); in != nil {
			return rule(o, in)
		}
		return nil
	}
}

// typed is a shape rule that sets the element type of the output first.
func typed(t graph.DType, rule func(*infer) error) func(*infer) error {
	return func(o *infer) error {
		o.SetType(0, t)
		return rule(o)
	}
}

// each combines gradients of single inputs to the gradient of an operator, and computes only the needed ones.
func each(dx ...func(c *call) node) func(c *call) []node {
	return func(c *call) []node {
		out := make([]node, len(dx))
		for i, f := range dx {
			if c.NeedsGrad(i) {
				out[i] = f(c)
			}
		}
		return out
	}
}

// zeroGradient is the gradient of a function that is constant between its jumps.
func zeroGradient(c *call) []node { return []node{ZerosLike(c.X(0))} }

// passGradient is the gradient of an operator whose first output equals its first input, up to broadcasting.
func passGradient(c *call) []node { return []node{c.G()} }

func apply(kind string, at graph.Attrs, in ...node) node {
	return in[0].Graph().Apply(graph.Standard, kind, at, in...)
}

func positive(x node) node { return x.Greater(x.ScalarLike(0)).Cast(x.DType()) }

func axesFrom(first, rank int) []int { return tensor.Indices(max(first, rank))[first:] }

func optional(in []node, i int) node {
	if i < len(in) {
		return in[i]
	}
	return node{}
}

// axisOf returns a copy of the shape of the first input, and its axis that the attribute axis names, counted with more
// additional axes if the operator adds some. The shape is nil if it is not known.
func axisOf(o *infer, missing, more int) (in graph.Shape, axis int, err error) {
	if in = slices.Clone(o.In[0].Shape()); in == nil {
		return nil, 0, nil
	}
	if axis, err = graph.Axis(o.Attrs.Int("axis", missing), len(in)+more); err != nil {
		return nil, 0, err
	}
	return in, axis, nil
}

// resolve returns axes from 0 on for axes that may count from the end; nil stands for the first n axes.
func resolve(axes []int, n, rank int) ([]int, error) {
	if axes == nil {
		axes = axesFrom(0, n)
	}

	out := make([]int, len(axes))
	for i, a := range axes {
		var err error
		if out[i], err = graph.Axis(a, rank); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// quotient returns a/n, or an unknown size with that name if a may not be divisible by n.
func quotient(o *infer, a graph.Dim, n int, name string, index ...int) graph.Dim {
	if q, ok := a.Div(graph.StaticDim(n)); ok {
		return q
	}
	return o.Unknown(name, index...)
}

func floats(v []float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
