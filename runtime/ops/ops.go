// Package ops defines the operators of ONNX and of ONNX Runtime that graphs are built of: everything that promptfed
// knows of an operator stands in one place, in the file of its family.
//
// A definition (graph.Def) holds the least number of inputs, the attributes with their types, the shape rule, and the
// gradient: either the vector-Jacobian product, or a decomposition into other operators, which are differentiated then.
// The test file of the family holds its cases for finite differences; TestGradients fails for a gradient without one.
package ops

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

type (
	node  = graph.Node
	call  = graph.Backward
	infer = graph.Inference
)

// unary is a function of each element of the first input, with its gradient from input, output and the gradient of
// that.
func unary(kind string, vjp func(x, y, dy node) node) graph.Def {
	d := graph.Def{Kind: kind, MinInputs: 1, Infer: graph.SameShape}
	if vjp != nil {
		d.VJP = func(c *call) []node { return []node{vjp(c.X(0), c.Y(), c.G())} }
	}
	return d
}

func nonSmooth(d graph.Def) graph.Def { d.NonSmooth = true; return d }

// zeroGradient is that of a function that is constant between its jumps.
func zeroGradient(c *call) []node { return []node{ZerosLike(c.X(0))} }

// passGradient is that of an operator whose first output is its first input, up to broadcasting.
func passGradient(c *call) []node { return []node{c.G()} }

// apply applies a standard operator without attributes.
func apply(kind string, in ...node) node {
	return in[0].Graph().Apply(graph.Standard, kind, nil, in...)
}

func positive(x node) node { return x.Greater(x.ScalarLike(0)).Cast(x.DType()) }

func axesFrom(first, rank int) []int {
	var out []int
	for i := first; i < rank; i++ {
		out = append(out, i)
	}
	return out
}

func floats(v []float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
