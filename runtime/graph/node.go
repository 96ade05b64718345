package graph

import (
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

func (n Node) apply(kind string, attrs Attrs, more ...Node) Node {
	return n.Graph().Apply(Standard, kind, attrs, append([]Node{n}, more...)...)
}

// Element-wise operators with broadcasting.

// Add returns n+m.
func (n Node) Add(m Node) Node { return n.apply("Add", nil, m) }

// Sub returns n-m.
func (n Node) Sub(m Node) Node { return n.apply("Sub", nil, m) }

// Mul returns the product of the elements, not that of matrices.
func (n Node) Mul(m Node) Node { return n.apply("Mul", nil, m) }

// Div returns n/m. Integers are divided towards zero.
func (n Node) Div(m Node) Node { return n.apply("Div", nil, m) }

// Max returns the larger of two elements. Of equal ones each gets half of the gradient.
func (n Node) Max(m Node) Node { return n.apply("Max", nil, m) }

// Min returns the smaller of two elements. Of equal ones each gets half of the gradient.
func (n Node) Min(m Node) Node { return n.apply("Min", nil, m) }

// MulScalar returns a*n.
func (n Node) MulScalar(a float64) Node {
	if a == 1 {
		return n
	}
	return n.Mul(n.ScalarLike(a))
}

// AddScalar is n+a.
func (n Node) AddScalar(a float64) Node {
	if a == 0 {
		return n
	}
	return n.Add(n.ScalarLike(a))
}

// Square returns n*n.
func (n Node) Square() Node { return n.Mul(n) }

// Neg returns -n.
func (n Node) Neg() Node { return n.apply("Neg", nil) }

// Exp returns e^n.
func (n Node) Exp() Node { return n.apply("Exp", nil) }

// Log returns the natural logarithm of n.
func (n Node) Log() Node { return n.apply("Log", nil) }

// Sqrt returns the square root of n. Its gradient at 0 is infinite.
func (n Node) Sqrt() Node { return n.apply("Sqrt", nil) }

// Reciprocal returns 1/n.
func (n Node) Reciprocal() Node { return n.apply("Reciprocal", nil) }

// Abs returns |n|. Its gradient at 0 is 0.
func (n Node) Abs() Node { return n.apply("Abs", nil) }

// Erf returns the error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to n.
func (n Node) Erf() Node { return n.apply("Erf", nil) }

// Tanh returns the hyperbolic tangent of n.
func (n Node) Tanh() Node { return n.apply("Tanh", nil) }

// Sigmoid returns 1/(1+e^-n).
func (n Node) Sigmoid() Node { return n.apply("Sigmoid", nil) }

// ReLU returns max(n, 0). Its gradient at 0 is 0.
func (n Node) ReLU() Node { return n.apply("Relu", nil) }

// Softplus returns log(1+e^n), stable for large |n|.
func (n Node) Softplus() Node { return n.apply("Softplus", nil) }

// Identity returns n as the output of another operator, for outputs that must not be inputs.
func (n Node) Identity() Node { return n.apply("Identity", nil) }

// Detach returns n without a gradient, as PyTorch's detach does.
func (n Node) Detach() Node { return n.Graph().internal(stopDef, nil, n) }

// DetachAs is Detach that returns a different node for each number, for one value in two roles.
func (n Node) DetachAs(role int) Node {
	return n.Graph().internal(stopDef, Attrs{"input": Attr(role)}, n)
}

// Cast converts the element type.
func (n Node) Cast(t DType) Node {
	if n.DType() == t {
		return n
	}
	return n.apply("Cast", Attrs{"to": Attr(int(t))})
}

// Equal returns a boolean for each pair of elements.
func (n Node) Equal(m Node) Node { return n.apply("Equal", nil, m) }

// Greater returns a boolean for each pair of elements.
func (n Node) Greater(m Node) Node { return n.apply("Greater", nil, m) }

// Where returns yes where the boolean n is true, and no elsewhere.
func (n Node) Where(yes, no Node) Node { return n.apply("Where", nil, yes, no) }

// MatMul returns the matrix product over the last two axes, broadcasting the others.
func (n Node) MatMul(m Node) Node { return n.apply("MatMul", nil, m) }

// MatMulT returns the product of n and the transpose of m over the last two axes, without computing the transpose.
func (n Node) MatMulT(m Node) Node {
	return n.Graph().Apply(Microsoft, "FusedMatMul", Attrs{"transB": Attr(1)}, n, m)
}

// Linear returns n wᵀ + b for n [N,in], w [out,in] (the layout of torch.nn.Linear) and an optional b [out].
func (n Node) Linear(w, b Node) Node { return n.apply("Gemm", Attrs{"transB": Attr(1)}, w, b) }

// T swaps the last two axes.
func (n Node) T() Node {
	r := n.Rank()
	if r < 2 {
		if n.failed() {
			return n
		}
		return n.Graph().Fail("T: shape %v has no two axes to swap", n.Shape())
	}

	p := tensor.Indices(r)
	p[r-1], p[r-2] = p[r-2], p[r-1]
	return n.Transpose(p...)
}

// Transpose permutes the axes: axis i of the result is axis perm[i] of n.
func (n Node) Transpose(perm ...int) Node { return n.apply("Transpose", Attrs{"perm": Attr(perm)}) }

// Reshape returns n with another shape of the same size. One size may be -1, and 0 keeps the size of that axis.
func (n Node) Reshape(sizes ...int) Node { return n.apply("Reshape", nil, n.Graph().Ints(sizes...)) }

// ReshapeLike returns n with the shape of m.
func (n Node) ReshapeLike(m Node) Node {
	return n.apply("Reshape", Attrs{"allowzero": Attr(1)}, m.Sizes())
}

// ShapeOf returns the shape of n as an integer vector.
func (n Node) ShapeOf() Node { return n.apply("Shape", nil) }

// Sizes returns the shape of n as an integer vector, a constant if it is known.
func (n Node) Sizes() Node {
	if s, ok := n.Shape().Ints(); ok {
		return n.Graph().Ints(s...)
	}
	return n.ShapeOf()
}

// Unsqueeze adds axes of size 1.
func (n Node) Unsqueeze(axes ...int) Node { return n.apply("Unsqueeze", nil, n.Graph().Ints(axes...)) }

// Squeeze removes axes of size 1.
func (n Node) Squeeze(axes ...int) Node { return n.apply("Squeeze", nil, n.Graph().Ints(axes...)) }

// Expand broadcasts n to at least the given sizes.
func (n Node) Expand(sizes ...int) Node { return n.apply("Expand", nil, n.Graph().Ints(sizes...)) }

// Slice returns the entries start:end of one axis.
func (n Node) Slice(axis, start, end int) Node {
	g := n.Graph()
	return n.apply("Slice", nil, g.Ints(start), g.Ints(end), g.Ints(axis))
}

// Gather returns the entries of an axis at the indices of an integer node.
func (n Node) Gather(axis int, index Node) Node {
	return n.apply("Gather", Attrs{"axis": Attr(axis)}, index)
}

// Rows returns the entries of the first axis at the indices of an integer node.
func (n Node) Rows(index Node) Node { return n.Gather(0, index) }

func (n Node) reduce(kind string, keep int, axes []int) Node {
	if len(axes) == 0 {
		return n.apply(kind, Attrs{"keepdims": Attr(keep)})
	}
	return n.apply(kind, Attrs{"keepdims": Attr(keep)}, n.Graph().Ints(axes...))
}

// Sum sums over the given axes, or all, and removes them.
func (n Node) Sum(axes ...int) Node { return n.reduce("ReduceSum", 0, axes) }

// Mean averages the given axes, or all, and removes them.
func (n Node) Mean(axes ...int) Node { return n.reduce("ReduceMean", 0, axes) }

// SumKeep sums over the given axes and keeps them with size 1.
func (n Node) SumKeep(axes ...int) Node { return n.reduce("ReduceSum", 1, axes) }

// MeanKeep averages the given axes and keeps them with size 1.
func (n Node) MeanKeep(axes ...int) Node { return n.reduce("ReduceMean", 1, axes) }

// Norm returns the Euclidean norm over one axis, which it removes. Its gradient at zero is zero.
func (n Node) Norm(axis int) Node { return n.Square().Sum(axis).AddScalar(tiny).Sqrt() }

// L2Normalize divides by the Euclidean norm over the last axis.
func (n Node) L2Normalize() Node {
	if n.KernelRows() {
		return n.Graph().ApplyN(Kernels, "L2Normalize", nil, 2, n)[0]
	}
	return n.Div(n.Square().SumKeep(-1).AddScalar(tiny).Sqrt())
}

// tiny keeps the gradient of a norm finite at zero; it is below float32 resolution of any norm above 1e-11.
const tiny = 1e-30

// Softmax normalises e^n over one axis.
func (n Node) Softmax(axis int) Node { return n.apply("Softmax", Attrs{"axis": Attr(axis)}) }

// LogSoftmax returns the logarithm of Softmax, computed in a stable way.
func (n Node) LogSoftmax(axis int) Node { return n.apply("LogSoftmax", Attrs{"axis": Attr(axis)}) }

// Concat joins nodes along an axis.
func Concat(axis int, a ...Node) Node {
	if len(a) == 1 {
		return a[0]
	}
	return a[0].Graph().Apply(Standard, "Concat", Attrs{"axis": Attr(axis)}, a...)
}

// Stack joins nodes of one shape along a new first axis.
func Stack(a ...Node) Node {
	b := convert.Slice(a, func(n Node) Node { return n.Unsqueeze(0) })
	return Concat(0, b...)
}

// Split cuts an axis into parts of the given sizes.
func (n Node) Split(axis int, sizes ...int) []Node {
	g := n.Graph()
	return g.ApplyN(Standard, "Split", Attrs{"axis": Attr(axis)}, len(sizes), n, g.Ints(sizes...))
}

// OneHot returns 1 at each index of an integer node and 0 elsewhere, on a new last axis of the given depth.
func OneHot(index Node, depth int) Node {
	g := index.Graph()
	values := g.Const(tensor.Of([]float32{0, 1}, 2))
	return g.Apply(Standard, "OneHot", Attrs{"axis": Attr(-1)}, index, g.Ints(depth), values)
}

// CrossEntropy returns the mean over the batch of -log softmax(logits [B,C])[label [B]].
func CrossEntropy(logits, label Node) Node {
	if g := logits.Graph(); g.HasKernels(DeviceKernels) && logits.DType() == Float && label.DType() == Int64 &&
		logits.Rank() == 2 {
		return g.ApplyN(Kernels, "CrossEntropy", nil, 2, logits, label)[0]
	}
	return logits.LogSoftmax(-1).Mul(OneHot(label, logits.Dim(-1))).Sum(-1).Mean().Neg()
}

// SigmoidCrossEntropy returns the loss of independent binary decisions per class: the mean over a batch of the sum over
// classes of -log σ(z l), for logits l [B,C], with z = 1 for the class of the label and -1 for others (Zhai et al.,
// SigLIP, ICCV 2023, section 3.2, with classes for texts).
func SigmoidCrossEntropy(logits, label Node) Node {
	sign := OneHot(label, logits.Dim(-1)).MulScalar(-2).AddScalar(1)
	return logits.Mul(sign).Softplus().Sum(-1).Mean()
}

// MSE returns the mean of squared differences over all elements.
func MSE(a, b Node) Node { return a.Sub(b).Square().Mean() }
