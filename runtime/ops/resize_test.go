package ops_test

import (
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

func init() {
	shapes(
		shapeCase{"Resize", nil, []any{"1,3,4,4", "0", "0", []int{1, 3, 8, 6}}, "[1,3,8,6]"},
	)
	resize := func(name string, scales []float32, sizes []int, at attrs, x ...int) gradientCase {
		return gradientCase{"Resize", name, one(func(b *bench) node {
			in := []node{b.x("x", x...), {}}
			if scales != nil {
				in = append(in, b.Const(tensor.Of(scales, len(scales))))
			} else {
				in = append(in, node{}, b.Ints(sizes...))
			}
			return b.op("Resize", at, in...)
		}), 0}
	}
	mode := func(m, coordinate string) graph.Attrs {
		return attrs{"mode": graph.Attr(m), "coordinate_transformation_mode": graph.Attr(coordinate)}
	}
	gradients(
		resize("nearest up", []float32{1, 1, 2, 3}, nil, attrs{"mode": graph.Attr("nearest"),
			"coordinate_transformation_mode": graph.Attr("asymmetric"), "nearest_mode": graph.Attr("floor")}, symB, 2,
			3, 4),
		resize("nearest down", nil, []int{2, 2, 3, 2}, mode("nearest", "half_pixel"), 2, 2, 5, 4),
		resize("linear", nil, []int{2, 2, 9, 3}, mode("linear", "pytorch_half_pixel"), 2, 2, 5, 4),
		resize("linear, corners", nil, []int{2, 2, 3, 7}, mode("linear", "align_corners"), 2, 2, 5, 4),
		resize("cubic", nil, []int{2, 2, 9, 3}, attrs{"mode": graph.Attr("cubic"), "cubic_coeff_a": graph.Attr(-0.75),
			"coordinate_transformation_mode": graph.Attr("half_pixel")}, 2, 2, 5, 4),
		resize("cubic, scales", []float32{1, 1, 1.6, 0.7}, nil, attrs{"mode": graph.Attr("cubic"),
			"exclude_outside": graph.Attr(1)}, 2, 2, 5, 4),
		resize("antialias", nil, []int{2, 2, 3, 2}, attrs{"mode": graph.Attr("linear"), "antialias": graph.Attr(1)}, 2,
			2, 7, 6),
		resize("axes", nil, []int{5, 6}, attrs{"mode": graph.Attr("linear"), "axes": graph.Attr([]int{2, 3})}, 2, 2, 3,
			4),
	)
}

// A size stays if its scale of 1.2 rounds down to it, from 4.8 to 4, but the elements move.
func TestResizeNeedsSizes(t *testing.T) {
	x := graph.New().Input("x", graph.Float, graph.Static(1, 1, 4, 4))
	scales := x.Graph().Const(tensor.Of([]float32{1, 1, 2, 1.2}, 4))
	_, err := grad.Of(apply("Resize", nil, x, node{}, scales).Sum(), x)
	goldentest.WantError(t, err, "the scale 1.2 of axis 3, whose size stays 4, is not supported: give sizes")
}
