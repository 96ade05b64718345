// Package ops defines the operators of ONNX and of ONNX Runtime that graphs are built of: everything that promptfed
// knows of an operator stands in one place, in the file of its family.
//
// A definition (graph.Def) holds the least number of inputs, the attributes with their types, the shape rule, and the
// gradient: either the vector-Jacobian product, or a decomposition into other operators, which are differentiated then.
// The test file of the family holds its cases for finite differences; TestGradients fails for a gradient without one.
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

// unary is a function of each element of the first input, with its gradient from input, output and the gradient of
// that.
func unary(kind string, vjp func(x, y, dy node) node) def {
	return def{Kind: kind, MinInputs: 1, Infer: sameShape, VJP: func(c *call) []node {
		return []node{vjp(c.X(0), c.Y(), c.G())}
	}}
}

func nonSmooth(d def) def { d.NonSmooth = true; return d }

// each is the gradient of an operator from those of its inputs one by one, as far as they are needed.
func each(dx ...func(c *call) node) func(c *call) []node {
	return func(c *call) []node {
		out := make([]node, len(dx))
		for i, f := range dx {
			if c.Need(i) {
				out[i] = f(c)
			}
		}
		return out
	}
}

// zeroGradient is that of a function that is constant between its jumps.
func zeroGradient(c *call) []node { return []node{ZerosLike(c.X(0))} }

// passGradient is that of an operator whose first output is its first input, up to broadcasting.
func passGradient(c *call) []node { return []node{c.G()} }

// apply applies a standard operator.
func apply(kind string, at graph.Attrs, in ...node) node {
	return in[0].Graph().Apply(graph.Standard, kind, at, in...)
}

func positive(x node) node { return x.Greater(x.ScalarLike(0)).Cast(x.DType()) }

func axesFrom(first, rank int) []int {
	var out []int
	for i := first; i < rank; i++ {
		out = append(out, i)
	}
	return out
}

// optional is in[i], absent where there are fewer.
func optional(in []node, i int) node {
	if i < len(in) {
		return in[i]
	}
	return node{}
}

// axisOf gives the shape of the first input, as a copy, and its axis that the attribute axis names, of an axis more
// where the operator adds one. The shape is nil where it is not known or has no such axis.
func axisOf(o *infer, missing, more int) (in graph.Shape, axis int, err error) {
	if in = slices.Clone(o.In[0].Shape()); in == nil {
		return nil, 0, nil
	}
	if axis, err = graph.Axis(o.Attrs.Int("axis", missing), len(in)+more); err != nil {
		return nil, 0, err
	}
	return in, axis, nil
}

// resolve gives axes that may count from the end their numbers; where none are given they are the first n.
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

// quotient is a/n, or an unknown size of that name where it may not be whole.
func quotient(o *infer, a graph.Dim, n int, name string, index ...int) graph.Dim {
	if q, ok := a.Div(graph.D(n)); ok {
		return q
	}
	return o.Unknown(name, index...)
}

func floats(v []float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
