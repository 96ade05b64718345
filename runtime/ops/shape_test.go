package ops_test

import (
	"fmt"
	"testing"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"Reshape", nil, []any{"2,6", []int{3, -1}}, "[3,4]"},
		shapeCase{"Reshape", nil, []any{"S,6", []int{0, 2, -1}}, "[S,2,3]"},
		shapeCase{"Reshape", nil, []any{"S,6", []int{-1, 3}}, "[2*S,3]"},
		shapeCase{"Reshape", nil, []any{"2,6", []int{5, -1}}, "Reshape([2,6], [2]): [2,6] does not divide into [5,-1]"},
		shapeCase{"Reshape", nil, []any{"2,6", []int{5, 2}},
			"Reshape([2,6], [2]): [2,6] has 12 elements, [5,2] has 10"},
		shapeCase{"Flatten", attrs{"axis": graph.Attr(2)}, []any{"S,2,3,4"}, "[2*S,12]"},
		shapeCase{"Transpose", attrs{"perm": graph.Attr([]int{2, 0, 1})}, []any{"S,3,4"}, "[4,S,3]"},
		shapeCase{"Transpose", nil, []any{"2,3,4"}, "[4,3,2]"},
		shapeCase{"Transpose", attrs{"perm": graph.Attr([]int{0, 0})}, []any{"2,3"},
			"Transpose([2,3]): [0 0] is no permutation"},
		shapeCase{"Squeeze", nil, []any{"1,S,1", []int{0, -1}}, "[S]"},
		shapeCase{"Squeeze", nil, []any{"1,3,1"}, "[3]"},
		shapeCase{"Squeeze", nil, []any{"2,3", []int{0}}, "Squeeze([2,3], [1]): axis 0 has size 2"},
		shapeCase{"Unsqueeze", nil, []any{"S,3", []int{0, -1}}, "[1,S,3,1]"},
		shapeCase{"Expand", nil, []any{"3,1", []int{2, 1, 4}}, "[2,3,4]"},
		shapeCase{"Tile", nil, []any{"S,3", []int{2, 3}}, "[2*S,9]"},
		shapeCase{"Concat", attrs{"axis": graph.Attr(-1)}, []any{"S,3", "2,4"}, "[2,7]"},
		shapeCase{"Concat", attrs{"axis": graph.Attr(0)}, []any{"S,3", "1,3"}, "[(S+1),3]"},
		shapeCase{"Concat", attrs{"axis": graph.Attr(0)}, []any{"2,3", "2,4"},
			"Concat([2,3], [2,4]): axis 1 is 3 and 4"},
		shapeCase{"Split", attrs{"axis": graph.Attr(1)}, []any{"2,6", []int{6}}, "[2,6]"},
		shapeCase{"Split", nil, []any{"6,2", []int{5}}, "Split([6,2], [1]): sizes [5] of an axis of 6"},
		shapeCase{"Shape", nil, []any{"S,3,4"}, "[3]"},
		shapeCase{"Size", nil, []any{"S,3,4"}, "[]"},
		shapeCase{"ConstantOfShape", nil, []any{[]int{2, 3}}, "[2,3]"},
		shapeCase{"Range", nil, []any{2, 9, 3}, "[3]"},
	)
	gradients(
		moveCase("Reshape", "", func(b *bench) node { return b.x("x", 2, 6).Reshape(3, -1) }),
		moveCase("Reshape", "symbol", func(b *bench) node { return b.x("x", symB, 6).Reshape(0, 2, 3) }),
		moveCase("Reshape", "like", func(b *bench) node {
			return b.x("x", symB, 6).ReshapeLike(b.constant("y", 2, symB,
				3))
		}),
		moveCase("Reshape", "at run time", func(b *bench) node {
			return b.op("Reshape", nil, b.x("x", 2, 6), b.ints("s", []int64{3, 4}, 2))
		}),
		moveCase("Flatten", "", func(b *bench) node {
			return b.op("Flatten", attrs{"axis": graph.Attr(2)}, b.x("x", symB, 2,
				3))
		}),
		moveCase("Squeeze", "", func(b *bench) node { return b.x("x", 1, 3, 1).Squeeze(0, -1) }),
		moveCase("Squeeze", "all", func(b *bench) node { return b.op("Squeeze", nil, b.x("x", 1, 3, 1)) }),
		moveCase("Unsqueeze", "", func(b *bench) node { return b.x("x", symB, 3).Unsqueeze(0, -1) }),
		moveCase("Transpose", "", func(b *bench) node { return b.x("x", symB, 3, 4).Transpose(2, 0, 1) }),
		moveCase("Transpose", "default", func(b *bench) node { return b.op("Transpose", nil, b.x("x", 2, 3, 4)) }),
		moveCase("Expand", "", func(b *bench) node { return b.x("x", 3, 1).Expand(2, 3, 4) }),
		moveCase("Expand", "smaller", func(b *bench) node { return b.x("x", 2, 3).Expand(3) }),
		moveCase("Expand", "symbol", func(b *bench) node {
			return b.op("Expand", nil, b.x("x", 1, 3), b.constant("y", symB,
				3).ShapeOf())
		}),
		moveCase("Expand", "at run time", func(b *bench) node {
			return b.op("Expand", nil, b.x("x", 1, 3), b.ints("s", []int64{2, 4, 1}, 3))
		}),
		moveCase("Tile", "", func(b *bench) node { return b.op("Tile", nil, b.x("x", 2, 3), b.Ints(3, 2)) }),
		moveCase("Tile", "symbol", func(b *bench) node { return b.op("Tile", nil, b.x("x", symB, 3), b.Ints(3, 1)) }),
		moveCase("Tile", "at run time", func(b *bench) node {
			return b.op("Tile", nil, b.x("x", 2, 3), b.ints("r", []int64{2, 3}, 2))
		}),
		moveCase("Concat", "", func(b *bench) node {
			return graph.Concat(-1, b.x("a", 2, 3), b.constant("b", 2, 1),
				b.x("c", 2, 2))
		}),
		moveCase("Concat", "symbol", func(b *bench) node {
			return graph.Concat(0, b.x("a", 2, 3), b.x("b", symB, 3),
				b.x("c", 1, 3))
		}),
		gradientCase{"Split", "uneven", func(b *bench) []node {
			p := b.x("x", 2, 6).Split(1, 1, 3, 2)
			return []node{p[0].Square(), p[2].Square().MulScalar(2)}
		}, 0},
		gradientCase{"Split", "equal, axis 0", func(b *bench) []node {
			return b.ApplyN(graph.Standard, "Split", attrs{"num_outputs": graph.Attr(2)}, 2, b.x("x", 5, 2).Square())
		}, 0},
		gradientCase{"Split", "symbol", func(b *bench) []node { return b.x("x", symB, 6).Split(-1, 2, 4)[1:] }, 0},
		ofInputs(graph.Standard, "DepthToSpace", "DCR", attrs{"blocksize": graph.Attr(2)}, []int{symB, 8, 2, 3}),
		ofInputs(graph.Standard, "DepthToSpace", "CRD", attrs{"blocksize": graph.Attr(2), "mode": graph.Attr("CRD")},
			[]int{2, 8, 2, 3}),
		ofInputs(graph.Standard, "SpaceToDepth", "", attrs{"blocksize": graph.Attr(2)}, []int{symB, 2, 4, 6}),
	)
}

// moveCase squares the output of an operator that moves elements, so that the derivatives of all elements differ.
func moveCase(kind, name string, f func(b *bench) node) gradientCase {
	return gradientCase{kind, name, one(func(b *bench) node { return f(b).Square() }), 0}
}

// TestContents follows known integers through the chains that exporters write around Reshape.
func TestContents(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(6), graph.StaticDim(8)})
	batch := x.ShapeOf().Gather(0, g.Scalar64(0)).Unsqueeze(0)
	heads := x.ShapeOf().Slice(0, 2, 3).Cast(graph.Int64).Div(g.Ints(2))
	shape := graph.Concat(0, batch, g.Ints(-1, 2), heads)
	if got := fmt.Sprint(g.Apply(graph.Standard, "Reshape", nil, x, shape).Shape()); got != "[B,6,2,4]" {
		t.Errorf("reshape: %s", got)
	}
	minus := g.Apply(graph.Standard, "ConstantOfShape", nil, g.Ints(2)).Cast(graph.Int64)
	want := shape.Slice(0, 0, 2)
	picked := want.Equal(g.Ints(-1, -1)).Where(g.Ints(1, 1), want)
	if got := fmt.Sprint(graph.Shape(picked.Ints())); got != "[B,1]" || minus.Ints() != nil {
		t.Errorf("where: %s", got)
	}
	if err := g.Err(); err != nil {
		t.Error(err)
	}
}

// The caller owns the slice of outputs: changing it changes neither the operator nor later results.
func TestOutputsAreTheCallers(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(4, 2))
	split := func() []graph.Node {
		return g.ApplyN(graph.Standard, "Split", attrs{"axis": graph.Attr(0)}, 2, x, g.Ints(1, 3))
	}
	first := split()
	op := first[0].Op()
	first[0], first[1] = x, x
	for _, again := range [][]graph.Node{split(), op.Out} {
		if got := fmt.Sprint(again[0].Shape(), again[1].Shape()); got != "[1,2] [3,2]" || again[1].Op() != op {
			t.Errorf("outputs are %s of %v", got, again[1].Op().Label())
		}
	}
}
