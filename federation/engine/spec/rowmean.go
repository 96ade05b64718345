package spec

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// dependence says how a node depends on the rows of a batch.
type dependence int

const (
	ofNone  dependence = iota
	ofRow              // entry i of the first axis on row i alone
	ofMean             // a mean over rows of what depends on each, or linear in such means
	ofBatch            // in any other way, or in one that is not known
)

// MeanOverRows reports whether values are means over the rows of a batch, or depend on no row, so that a batch may be
// computed in parts, each weighted by its rows. A loss that compares the images of a batch, such as CLIP's own, is no
// such mean, and neither is a loss with an operator that is not known here.
func MeanOverRows(values ...graph.Node) bool {
	all := dependences(values)
	return !slices.ContainsFunc(values, func(n graph.Node) bool { d := all[n.Op()]; return d == ofRow || d == ofBatch })
}

// dependences returns what all operators that values need depend on.
func dependences(values []graph.Node) map[*graph.Op]dependence {
	all := map[*graph.Op]dependence{}
	for _, op := range graph.Reachable(values...) {
		all[op] = dependenceOf(op, func(n graph.Node) dependence {
			if !n.OK() {
				return ofNone
			}
			return all[n.Op()]
		})
	}

	return all
}

// EachImageAlone reports whether every part of values that depends on pixels, and on no other input, has a row for each
// image that depends on this image alone.
func EachImageAlone(values ...graph.Node) bool {
	all := dependences(values)
	for op := range PixelsAlone(values...) {
		if all[op] != ofRow {
			return false
		}
	}
	return true
}

// PixelsAlone returns the operators that values need and that depend on the pixels of images, and on no other input.
func PixelsAlone(values ...graph.Node) map[*graph.Op]bool {
	isPixels := func(n graph.Node) bool {
		return method.InputOf(n) == method.Input{Kind: method.RowInput, Name: method.PixelsInput}
	}
	alone := graph.ReadersOf(isPixels, values...)
	for op := range graph.ReadersOf(func(n graph.Node) bool { return !isPixels(n) }, values...) {
		delete(alone, op)
	}

	return alone
}

// Operators by their effect on the dependence of their inputs.
var (
	eachEntry = []string{"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Neg", "Exp", "Log", "Sqrt", "Reciprocal",
		"Abs", "Erf", "Tanh", "Sigmoid", "Relu", "Softplus", "Identity", "Cast", "Greater", "Less", "Equal", "Not",
		"And", "Or", "Where", "StopGradient"}
	rearranges = []string{"Reshape", "Squeeze", "Unsqueeze", "Identity"}
	reduces    = []string{"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"}
	products   = []string{"MatMul", "FusedMatMul", "Gemm"}
)

// dependenceOf returns the dependence of an operator's outputs, from that of its inputs.
func dependenceOf(op *graph.Op, depends func(graph.Node) dependence) dependence {
	first := op.Out[0].Shape()
	byRow := len(first) > 0 && first[0] == graph.Sym("B")
	_, perExample := op.Placeholder().(method.PerExample)
	switch {
	case byRow && (op.IsInput() || perExample):
		return ofRow
	case op.IsInput():
		return ofNone
	}

	var rows, means int
	for _, n := range append(slices.Clone(op.In), op.Uses...) {
		switch depends(n) {
		case ofBatch:
			return ofBatch
		case ofRow:
			rows++
		case ofMean:
			means++
		}
	}

	switch {
	case rows+means == 0:
		return ofNone
	case len(op.Uses) > 0 || rows > 0 && means > 0:
		return ofBatch
	case means > 0:
		if linear(op, depends, means) {
			return ofMean
		}
	case op.Kind == "CrossEntropy" && depends(op.In[0]) == ofRow && depends(op.In[1]) == ofRow:
		return ofMean
	case slices.Contains(reduces, op.Kind):
		switch axes, known := reduced(op); {
		case !known:
		case byRow && !slices.Contains(axes, 0):
			return ofRow
		case op.Kind == "ReduceMean":
			return ofMean
		}
	case byRow && rowwise(op, depends):
		return ofRow
	}

	return ofBatch
}

// linear reports whether an operator is linear in its inputs that are means.
func linear(op *graph.Op, depends func(graph.Node) dependence, means int) bool {
	switch op.Kind {
	case "Add", "Sub", "Neg":
		return true
	case "Mul":
		return means == 1
	case "Div":
		return means == 1 && depends(op.In[0]) == ofMean
	}

	return slices.Contains(rearranges, op.Kind)
}

// rowwise reports whether entry i of the first axis of an operator's output depends on entry i of those inputs only
// that depend on rows. The first axis of the output is the batch.
func rowwise(op *graph.Op, depends func(graph.Node) dependence) bool {
	rank := op.Out[0].Rank()
	row := func(i int) bool { return depends(op.X(i)) == ofRow }
	axis := func(missing int) int { return (op.Attrs.Int("axis", missing) + rank) % rank }
	switch op.Placeholder().(type) { // images, with prompts for each or for all, and text prompts for each
	case method.PromptedImages:
		return row(0)
	case method.Prompt:
		return row(0) && !slices.ContainsFunc(op.In[1:], func(n graph.Node) bool { return depends(n) == ofRow })
	}

	switch {
	case slices.Contains(eachEntry, op.Kind):
		return !slices.ContainsFunc(op.In, func(n graph.Node) bool {
			return n.OK() && n.Rank() == rank && depends(n) != ofRow && !n.Shape()[0].Is(1) ||
				depends(n) == ofRow && n.Rank() != rank
		})
	case slices.Contains(rearranges, op.Kind):
		return op.In[0].Shape()[0] == graph.Sym("B")
	case slices.Contains(products, op.Kind):
		a, b := op.In[0], op.In[1]
		switch {
		case a.Rank() < 2 || b.Rank() < 2:
			return false
		case row(0) && !row(1):
			return b.Rank() == 2 && (a.Rank() > 2 || op.Attrs.Int("transA", 0) == 0) && !row(2)
		case !row(0):
			return a.Rank() == 2 && b.Rank() > 2 && !row(2)
		}
		return a.Rank() > 2 && a.Rank() == b.Rank()
	}

	switch op.Kind {
	case "Softmax", "LogSoftmax", "LayerNormalization", "LayerNorm", "L2Normalize":
		return rank > 1 && axis(-1) > 0 && !row(1) && !row(2)
	case "Transpose":
		perm, ok := op.Attrs.Ints("perm")
		return ok && perm[0] == 0
	case "OneHot":
		return axis(-1) > 0 && !row(1) && !row(2)
	case "Gather": // entries of a row, or of a table for each row
		at := op.Attrs.Int("axis", 0)
		return row(0) && !row(1) && at > 0 || row(1) && !row(0) && at == 0
	case "Concat":
		return axis(0) > 0 && !slices.ContainsFunc(op.In, func(n graph.Node) bool { return depends(n) != ofRow })
	}

	return false
}

// reduced returns the axes of a reduction, counted from the first; all axes if none are given.
func reduced(op *graph.Op) (axes []int, known bool) {
	rank := op.In[0].Rank()
	if !op.X(1).OK() {
		return tensor.Indices(rank), true
	}

	axes, known = op.X(1).StaticInts()
	axes = slices.Clone(axes)
	for i := range axes {
		axes[i] = (axes[i] + rank) % rank
	}

	return axes, known
}
