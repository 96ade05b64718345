package ops

import (
	"maps"
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(def{Kind: "Resize", MinInputs: 1, MinRank: 1, Infer: ranked(inferResize), VJP: resizeVJP,
		Attrs: "antialias int, axes ints, coordinate_transformation_mode string, cubic_coeff_a float, " +
			"exclude_outside int, extrapolation_value float, keep_aspect_ratio_policy string, mode string, " +
			"nearest_mode string"})
}

func inferResize(inference *infer, out graph.Shape) error {
	axes, _ := inference.Attrs.Ints("axes")
	axes, err := resolve(axes, len(out), len(out))
	if err != nil {
		return err
	}

	plain := inference.Attrs.Str("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize" &&
		inference.Attrs.Str("keep_aspect_ratio_policy", "stretch") == "stretch"
	var sizes []graph.Dim
	if inference.X(3).OK() {
		sizes = inference.X(3).Ints()
	}

	scales := inference.X(2).Numbers()
	for i, a := range axes {
		switch {
		case plain && len(sizes) == len(axes):
			out[a] = sizes[i]
		case plain && len(scales) == len(axes) && out[a].Static():
			out[a] = graph.StaticDim(int(scales[i] * float32(out[a].N)))
		default:
			out[a] = inference.Unknown("resize", a)
		}
	}

	return inference.Set(out)
}

// resizeVJP covers every mode. Resizing is linear and separable by axis, so the operator applied to the unit vectors is
// the matrix of an axis, and the gradient is a product with its transpose.
func resizeVJP(backward *call) []node {
	x, at, g := backward.X(0), backward.Attrs, backward.X(0).Graph()
	if m := at.Str("coordinate_transformation_mode", "half_pixel"); m == "tf_crop_and_resize" {
		return backward.Fail("%s is not supported", m)
	}

	if p := at.Str("keep_aspect_ratio_policy", "stretch"); p != "stretch" {
		return backward.Fail("keep_aspect_ratio_policy %s is not supported", p)
	}

	if !backward.X(3).OK() && !backward.X(2).OK() {
		return backward.Fail("it has neither scales nor sizes")
	}

	axes, _ := at.Ints("axes")
	axes, err := resolve(axes, x.Rank(), x.Rank())
	if err != nil {
		return backward.Fail("%v", err)
	}

	own := maps.Clone(at)
	delete(own, "axes")
	gradient, scales := backward.G(), backward.X(2).Numbers()
	for i, axis := range axes {
		if s := backward.Y().Shape(); s != nil && s[axis] == x.Shape()[axis] {
			if !backward.X(3).OK() && i < len(scales) && scales[i] != 1 && !slices.Equal(s, x.Shape()) {
				return backward.Fail("the scale %g of axis %d, whose size stays %v, is not supported: give sizes",
					scales[i], axis, s[axis])
			}
			continue
		}

		size := sizeOf(x, axis)
		unit := apply("EyeLike", nil, zeros(x, vector(size, size)))
		unit = reshape(unit, vector(size, g.Ints(1, 1), size))
		in := []node{unit, {}}
		if backward.X(3).OK() {
			in = append(in, node{}, vector(size, g.Ints(1, 1), backward.X(3).Gather(0, g.Ints(i)).Cast(graph.Int64)))
		} else {
			one := g.Const(floats([]float32{1, 1, 1}))
			in = append(in, graph.Concat(0, one, backward.X(2).Gather(0, g.Ints(i))))
		}

		matrix := apply("Resize", own, in...) // [n,1,1,m]
		matrix = reshape(matrix, vector(size, g.Ints(-1)))
		last := x.Rank() - 1
		swap := axesFrom(0, x.Rank())
		swap[axis], swap[last] = swap[last], swap[axis]
		gradient = gradient.Transpose(swap...).MatMulT(matrix).Transpose(swap...)
	}

	return []node{gradient.ReshapeLike(x)}
}
