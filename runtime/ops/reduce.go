package ops

import (
	"errors"
	"slices"

	"promptfed/runtime/graph"
)

const reduceAttrs = "axes ints, keepdims int, noop_with_empty_axes int"

func init() {
	graph.Register(
		reduction("ReduceSum", false, func(x, _, dy node) node { return expandLike(dy, x) }),
		reduction("ReduceMean", false, func(x, _, dy node) node { return expandLike(dy.Div(count(x, dy)), x) }),
		reduction("ReduceMax", true, shareExtreme),
		reduction("ReduceMin", true, shareExtreme),
		reduction("ReduceL1", true, func(x, _, dy node) node { return dy.Mul(apply("Sign", nil, x)) }),
		reduction("ReduceL2", false, func(x, y, dy node) node { // x/y, and 0 for a vector of zeros
			return x.Mul(dy.Div(y.Add(y.Equal(y.ScalarLike(0)).Cast(y.DType()))))
		}),
		reduction("ReduceSumSquare", false, func(x, _, dy node) node { return x.Mul(dy).MulScalar(2) }),
		reduction("ReduceLogSum", false, func(x, y, dy node) node { return expandLike(dy.Div(y.Exp()), x) }),
		reduction("ReduceLogSumExp", false, func(x, y, dy node) node { return x.Sub(y).Exp().Mul(dy) }),
		def{Kind: "ReduceProd", MinInputs: 1, Attrs: reduceAttrs, Infer: ranked(inferReduce), VJP: reduceProdVJP},
		def{Kind: "ArgMax", MinInputs: 1, Attrs: "axis int, keepdims int, select_last_index int", Infer: inferArg},
		def{Kind: "ArgMin", MinInputs: 1, Attrs: "axis int, keepdims int, select_last_index int", Infer: inferArg},
		def{Kind: "CumSum", MinInputs: 2, Attrs: "exclusive int, reverse int", Infer: sameShape,
			VJP: each(func(c *call) node { // sums from the other end
				at := graph.Attrs{"exclusive": graph.Attr(c.Attrs.Int("exclusive", 0)),
					"reverse": graph.Attr(1 - c.Attrs.Int("reverse", 0))}
				return apply("CumSum", at, c.G(), c.X(1))
			})},
	)
}

// reduction defines an operator over axes with its gradient dx(x, y, dy), where y and dy have size 1 on those axes.
func reduction(kind string, nonSmooth bool, dx func(x, y, dy node) node) def {
	return def{Kind: kind, MinInputs: 1, Attrs: reduceAttrs, Infer: ranked(inferReduce), NonSmooth: nonSmooth,
		VJP: func(c *call) []node {
			return reduced(c, func(dy, y node) node { return dx(c.X(0), y, dy) })
		}}
}

// reduced applies rule to the gradient and the value of a reduction, both with size 1 on the reduced axes.
func reduced(backward *call, rule func(dy, y node) node) []node {
	if backward.Attrs.Int("keepdims", 1) != 0 {
		return []node{rule(backward.G(), backward.Y())}
	}

	axes, ok, err := reducedAxes(backward.Op)
	if !ok || err != nil {
		return backward.Fail("the reduced axes must be known when the graph is built")
	}

	if len(axes) == 0 {
		return []node{rule(backward.G(), backward.Y())}
	}

	return []node{rule(backward.G().Unsqueeze(axes...), backward.Y().Unsqueeze(axes...))}
}

// axesOf returns axes from the attribute (before operator set 13) or the second input.
func axesOf(o *graph.Op) ([]int, bool) {
	if a, ok := o.Attrs.Ints("axes"); ok {
		return a, true
	}
	if !o.X(1).OK() {
		return nil, true
	}
	return o.X(1).StaticInts()
}

// reducedAxes returns the axes of a reduction in ascending order; ok is false if they or the rank are known only at run
// time.
func reducedAxes(o *graph.Op) (axes []int, ok bool, err error) {
	axes, ok = axesOf(o)
	if !ok || o.In[0].Rank() < 0 {
		return nil, false, nil
	}

	rank := o.In[0].Rank()
	if len(axes) == 0 && o.Attrs.Int("noop_with_empty_axes", 0) == 0 {
		axes = axesFrom(0, rank)
	}

	axes, err = resolve(axes, 0, rank)
	slices.Sort(axes)
	return slices.Compact(axes), err == nil, err
}

func inferReduce(inference *infer, in graph.Shape) error {
	axes, ok, err := reducedAxes(inference.Op)
	keep := inference.Attrs.Int("keepdims", 1) == 1
	if err != nil || !ok && !keep {
		return err
	}

	if inference.Kind == "ReduceSumSquare" && ok && len(axes) == 0 && len(in) > 0 {
		return errors.New("ONNX Runtime's CUDA provider does not square without axes: use Mul")
	}

	if v := inference.In[0].ConstantInts(); inference.Kind == "ReduceProd" && ok && v != nil && len(axes) == len(in) {
		inference.SetContent([]graph.Dim{graph.Shape(v).Size()})
	}

	out := graph.Shape{}
	for i, d := range in {
		switch {
		case !ok && !d.Is(1): // unchanged, or 1
			out = append(out, inference.Unknown("reduced", i))
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, graph.StaticDim(1))
		}
	}

	return inference.Set(out)
}

func inferArg(inference *infer) error {
	inference.SetType(0, graph.Int64)
	out, a, err := axisOf(inference, 0, 0)
	if out == nil {
		return err
	}

	if inference.Attrs.Int("keepdims", 1) == 1 {
		out[a] = graph.StaticDim(1)
	} else {
		out = slices.Delete(out, a, a+1)
	}

	return inference.Set(out)
}

// shareExtreme divides the gradient of a maximum or minimum among the elements that attain it.
func shareExtreme(x, y, dy node) node {
	attains := x.Equal(y).Cast(x.DType())
	return dy.Mul(attains).Div(SumTo(attains, y))
}

// reduceProdVJP multiplies by the product of all other elements: y/x, and if x is 0 the product of the others.
func reduceProdVJP(backward *call) []node {
	x, axes := backward.X(0), []node(nil)
	if len(backward.In) > 1 {
		axes = []node{backward.X(1)}
	}

	keep := graph.Attrs{"keepdims": graph.Attr(1),
		"noop_with_empty_axes": graph.Attr(backward.Attrs.Int("noop_with_empty_axes", 0))}
	if a, ok := backward.Attrs.Ints("axes"); ok {
		keep["axes"] = graph.Attr(a)
	}

	over := func(kind string, n node) node {
		return apply(kind, keep, append([]node{n}, axes...)...)
	}
	zero, one := x.ScalarLike(0), x.ScalarLike(1)
	isZero := x.Equal(zero)
	rest := isZero.Where(one, x)
	product, zeros := over("ReduceProd", rest), over("ReduceSum", isZero.Cast(x.DType()))
	others := isZero.Where(product.Mul(zeros.Equal(one).Cast(x.DType())),
		product.Div(rest).Mul(zeros.Equal(zero).Cast(x.DType())))
	return reduced(backward, func(g, _ node) node { return g.Mul(others) })
}

// count returns the number of elements of x per element of the reduced g.
func count(x, g node) node {
	if x.Shape() != nil && g.Shape() != nil {
		if q, ok := x.Shape().Size().Div(g.Shape().Size()); ok && q.Static() {
			return x.ScalarLike(float64(q.N))
		}
	}
	elements := func(n node) node { return apply("Size", nil, n).Cast(x.DType()) }
	return elements(x).Div(elements(g))
}
