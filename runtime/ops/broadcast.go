package ops

import (
	"slices"

	"promptfed/runtime/graph"
)

// Compatible reports whether two shapes may be the same at run time.
func Compatible(a, b graph.Shape) bool {
	if a == nil || b == nil {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y graph.Dim) bool { return x.Sym != y.Sym || x == y })
}

// SumTo sums a gradient over the axes that broadcasting repeated, so that it has the shape of operand. If an axis is a
// symbol in operand and has another size in gradient, the symbol may be 1 at run time, so the sum is decided then.
func SumTo(gradient, operand node) node {
	from, to := gradient.Shape(), operand.Shape()
	if from == nil || to == nil {
		return sumToAtRun(gradient, operand)
	}

	lead := len(from) - len(to)
	if lead < 0 {
		return gradient
	}

	var axes []int
	for i := range from {
		switch {
		case i < lead:
			axes = append(axes, i)
		case from[i] == to[i-lead]:
		case to[i-lead].Is(1):
			axes = append(axes, i)
		case !to[i-lead].Static():
			return sumToAtRun(gradient, operand)
		}
	}

	if len(axes) == 0 {
		return gradient
	}

	s := gradient.SumKeep(axes...)
	if lead == 0 {
		return s
	}

	return s.ReshapeLike(operand)
}

// sumToAtRun is SumTo for sizes that are known only at run time: the graph compares the shape of d with that of x,
// padded with ones in front.
func sumToAtRun(d, x node) node {
	g := d.Graph()
	one := g.Ints(1)
	rank := func(n node) node { return n.ShapeOf().ShapeOf() }
	ones := apply("Expand", nil, one, rank(d).Sub(rank(x)))
	padded := graph.Concat(0, ones, x.ShapeOf())
	repeated := apply("And", nil, padded.Equal(one), d.ShapeOf().Greater(one))
	axes := apply("NonZero", nil, repeated).Reshape(-1)
	s := apply("ReduceSum", graph.Attrs{"keepdims": graph.Attr(1), "noop_with_empty_axes": graph.Attr(1)}, d, axes)
	return s.ReshapeLike(x)
}

// sizeOf returns the size of one axis as an integer vector of one element, a constant if it is known.
func sizeOf(x node, axis int) node {
	if s := x.Shape(); s != nil && s[axis].Static() {
		return x.Graph().Ints(s[axis].N)
	}
	return x.ShapeOf().Gather(0, x.Graph().Ints(axis))
}

// vector joins integer vectors; the result is a constant if all of them are.
func vector(parts ...node) node {
	v := graph.Concat(0, parts...)
	if s, ok := v.StaticInts(); ok && s != nil {
		return v.Graph().Ints(s...)
	}
	return v
}

// reshape returns x with the shape in an integer vector.
func reshape(x, shape node) node {
	return apply("Reshape", nil, x, shape)
}

// zeros returns a tensor of zeros with the element type of x and the shape in an integer vector.
func zeros(x, shape node) node {
	return apply("ConstantOfShape", nil, shape).Cast(x.DType())
}

// ZerosLike returns zeros with the shape and element type of x.
func ZerosLike(x node) node { return zeros(x, x.Sizes()) }

func expandLike(g, x node) node { return apply("Expand", nil, g, x.Sizes()) }
