package ops

import (
	"slices"

	"promptfed/runtime/graph"
)

// Constant propagation: the elements of small integer tensors are followed through the operators that compute shapes.

// fold computes an element of an output from those of the inputs, if it is known.
type fold func(args []graph.Dim) (graph.Dim, bool)

// propagate applies fold element by element to known elements.
func propagate(inference *infer, fold fold) {
	n := 1
	for _, x := range inference.In {
		if !x.OK() {
			return
		}
		switch l := len(x.Ints()); {
		case x.Ints() == nil, l != 1 && n != 1 && l != n:
			return
		case l != 1:
			n = l
		}
	}

	out := make([]graph.Dim, 0, n)
	for j := range n {
		args := make([]graph.Dim, len(inference.In))
		for i, x := range inference.In {
			if args[i] = x.Ints()[0]; len(x.Ints()) > 1 {
				args[i] = x.Ints()[j]
			}
		}
		d, ok := fold(args)
		if !ok {
			return
		}
		out = append(out, d)
	}

	inference.SetContent(out)
}

// pairwise folds an operator of two inputs, or of several from left to right. If f is nil, the result of two inputs is
// unknown.
func pairwise(f func(a, b graph.Dim) (graph.Dim, bool)) fold {
	return func(args []graph.Dim) (d graph.Dim, ok bool) {
		d, ok = args[0], true
		for i := 1; i < len(args) && ok; i++ {
			if ok = f != nil; ok {
				d, ok = f(d, args[i])
			}
		}
		return d, ok
	}
}

// numbers folds two numbers; the result of a symbol is unknown.
func numbers(f func(a, b int) int) fold {
	return pairwise(func(a, b graph.Dim) (graph.Dim, bool) {
		return graph.StaticDim(f(a.N, b.N)), a.Static() && b.Static()
	})
}

// predicate folds a comparison of two numbers.
func predicate(f func(a, b int) bool) fold {
	return pairwise(func(a, b graph.Dim) (graph.Dim, bool) {
		return graph.BoolDim(f(a.N, b.N)), a.Static() && b.Static()
	})
}

// content holds the elements of an integer tensor of known shape.
type content struct {
	shape []int
	cells []graph.Dim
}

func contentOf(n node) (content, bool) {
	s, ok := n.Shape().Ints()
	return content{s, n.ConstantInts()}, ok && n.ConstantInts() != nil
}

// transposed returns the tensor with permuted axes.
func (g content) transposed(perm []int) []graph.Dim {
	out := make([]graph.Dim, 0, len(g.cells))
	strides, at := make([]int, len(g.shape)), 1
	for i := len(g.shape) - 1; i >= 0; i-- {
		strides[i], at = at, at*g.shape[i]
	}

	var walk func(axis, from int)
	walk = func(axis, from int) {
		if axis == len(perm) {
			out = append(out, g.cells[from])
			return
		}
		for i := range g.shape[perm[axis]] {
			walk(axis+1, from+i*strides[perm[axis]])
		}
	}

	walk(0, 0)
	return out
}

// sliced returns the n entries start, start+step, ... of one axis.
func (g content) sliced(axis, start, step, n int) content {
	inner := 1
	for _, d := range g.shape[axis+1:] {
		inner *= d
	}

	block := inner * g.shape[axis]
	var out []graph.Dim
	for at := 0; at < len(g.cells); at += block {
		for i := range n {
			from := at + (start+i*step)*inner
			out = append(out, g.cells[from:from+inner]...)
		}
	}

	shape := slices.Clone(g.shape)
	shape[axis] = n
	return content{shape, out}
}
