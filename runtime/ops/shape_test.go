package ops_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
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
		shapeCase{"Unsqueeze", nil, []any{"S,3"}, "Unsqueeze([S,3]): needs axes"},
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
		shapeCase{"Range", nil, []any{9, 2, 3}, "[0]"},
		shapeCase{"Range", nil, []any{2, 9, 0}, "Range([], [], []): step 0"},
		shapeCase{"Reshape", nil, []any{"2,6", []int{-2}}, "Reshape([2,6], [1]): size -2 in [-2]"},
		shapeCase{"Flatten", attrs{"axis": graph.Attr(-1)}, []any{"2,3,4"}, "[6,4]"},
		shapeCase{"Slice", nil, []any{"S,6", []int{0}, []int{1}, []int{0}}, "[1,6]"},
		shapeCase{"Slice", nil, []any{"S,6", []int{2}, []int{-1}, []int{0}}, "[(S-3),6]"},
		shapeCase{"Slice", nil, []any{"S,6", []int{2}, []int{math.MaxInt32}, []int{0}}, "[(S-2),6]"},
		shapeCase{"Slice", nil, []any{"S,6", []int{-1}, []int{math.MaxInt32}, []int{0}}, "[1,6]"},
		shapeCase{"Slice", nil, []any{"S,6", []int{1}, []int{-1}, []int{1}, []int{2}}, "[S,2]"},
	)
	gradients(
		moveCase("Reshape", "", func(b *bench) node { return b.x("x", 2, 6).Reshape(3, -1) }),
		moveCase("Reshape", "symbol", func(b *bench) node { return b.x("x", symB, 6).Reshape(0, 2, 3) }),
		moveCase("Reshape", "like", func(b *bench) node {
			return b.x("x", symB, 6).ReshapeLike(b.constant("y", 2, symB, 3))
		}),
		moveCase("Reshape", "at run time", func(b *bench) node {
			return b.op("Reshape", nil, b.x("x", 2, 6), b.ints("s", []int64{3, 4}, 2))
		}),
		moveCase("Flatten", "", func(b *bench) node {
			return b.op("Flatten", attrs{"axis": graph.Attr(2)}, b.x("x", symB, 2, 3))
		}),
		moveCase("Squeeze", "", func(b *bench) node { return b.x("x", 1, 3, 1).Squeeze(0, -1) }),
		moveCase("Squeeze", "all", func(b *bench) node { return b.op("Squeeze", nil, b.x("x", 1, 3, 1)) }),
		moveCase("Unsqueeze", "", func(b *bench) node { return b.x("x", symB, 3).Unsqueeze(0, -1) }),
		moveCase("Transpose", "", func(b *bench) node { return b.x("x", symB, 3, 4).Transpose(2, 0, 1) }),
		moveCase("Transpose", "default", func(b *bench) node { return b.op("Transpose", nil, b.x("x", 2, 3, 4)) }),
		moveCase("Expand", "", func(b *bench) node { return b.x("x", 3, 1).Expand(2, 3, 4) }),
		moveCase("Expand", "smaller", func(b *bench) node { return b.x("x", 2, 3).Expand(3) }),
		moveCase("Expand", "symbol", func(b *bench) node {
			return b.op("Expand", nil, b.x("x", 1, 3), b.constant("y", symB, 3).ShapeOf())
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
			return graph.Concat(-1, b.x("a", 2, 3), b.constant("b", 2, 1), b.x("c", 2, 2))
		}),
		moveCase("Concat", "symbol", func(b *bench) node {
			return graph.Concat(0, b.x("a", 2, 3), b.x("b", symB, 3), b.x("c", 1, 3))
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
	unknown := g.Input("unknown", graph.Int64, nil)
	swap := attrs{"perm": graph.Attr([]int{1, 0})}
	if n := apply("Transpose", swap, unknown); n.Rank() == 2 && n.Shape()[0].Static() {
		t.Errorf("the transpose of an unknown matrix: %v", n)
	}
	sizes := g.Input("sizes", graph.Int64, graph.Static(2))
	for n, rank := range map[node]int{graph.OneHot(unknown, 3): -1, apply("Transpose", nil, unknown): -1,
		apply("ConstantOfShape", nil, sizes): 2} {
		if n.Rank() != rank {
			t.Errorf("%v has rank %d, want %d", n, n.Rank(), rank)
		}
	}
	if n := x.Slice(0, 2, 0); n.Shape()[0].Static() || n.Shape()[0] == graph.Sym("B").Sub(graph.StaticDim(2)) {
		t.Errorf("an empty slice: %v", n)
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

// Integers that are known while building: by the definition of each operator. A symbol makes a result unknown, unless
// the result is the same for all sizes.
func TestKnownIntegers(t *testing.T) {
	g := graph.New()
	size := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3)}).ShapeOf() // [B,3]
	matrix := g.Ints(1, 2, 3, 4, 5, 6).Reshape(2, 3)
	build := func(kind string, in ...node) node { return apply(kind, nil, in...) }
	fill := func(t graph.DType, v byte) attrs {
		p := &onnx.TensorProto{DataType: int32(t), Dims: []int64{1}, RawData: []byte{v, 0, 0, 0, 0, 0, 0, 0}}
		return attrs{"value": graph.Attr(&onnx.AttributeProto{Type: onnx.AttributeProto_TENSOR, T: p})}
	}
	a, b := g.Ints(0, 2, 5, 7), g.Ints(2, 2, 4, 0)
	yes, no := a.Cast(graph.Bool), b.Cast(graph.Bool) // 0 1 1 1 and 1 1 1 0
	slice := func(n node, axis, from, to, step int) node {
		return build("Slice", n, g.Ints(from), g.Ints(to), g.Ints(axis), g.Ints(step))
	}
	for i, c := range []struct {
		n    node
		want string
	}{
		{build("Max", a, b), "[2,2,5,7]"}, {build("Min", a, b), "[0,2,4,0]"}, {build("Less", a, b), "[1,0,0,0]"},
		{build("LessOrEqual", a, b), "[1,1,0,0]"}, {build("Greater", a, b), "[0,0,1,1]"},
		{build("GreaterOrEqual", a, b), "[0,1,1,1]"}, {a.Equal(b), "[0,1,0,0]"}, {yes, "[0,1,1,1]"},
		{build("And", yes, no), "[0,1,1,0]"}, {build("Or", yes, no), "[1,1,1,1]"}, {build("Xor", yes, no), "[1,0,0,1]"},
		{build("Not", yes), "[1,0,0,0]"}, {yes.Where(a, b), "[2,2,5,7]"}, {a.Add(b), "[2,4,9,7]"},
		{a.Sub(b), "[-2,0,1,7]"},
		{a.Mul(b), "[0,4,20,0]"}, {g.Ints(7, 9).Div(g.Ints(2, 3)), "[3,3]"}, {build("Mod", a, g.Ints(3)), "[0,2,2,1]"},
		{build("Mod", g.Ints(-1), g.Ints(3)), "[?]"}, {build("Mod", g.Ints(1), g.Ints(0)), "[?]"},
		{build("Max", size, g.Ints(1)), "[?]"}, {size.Mul(g.Ints(2)), "[2*B,6]"}, {build("Less", size, g.Ints(1)),
			"[?]"},
		{size.Equal(size), "[1,1]"}, {size.Equal(g.Ints(-1)), "[0,0]"}, {size.Equal(g.Ints(2)), "[?]"},
		{size.Gather(0, g.Ints(-1, 0)), "[3,B]"}, {build("Size", matrix), "[6]"},
		{build("NonZero", a), "[1,2,3]"}, {build("NonZero", g.Ints(0)), "[]"}, {build("NonZero", size), "[?]"},
		{build("Expand", g.Ints(7), g.Ints(2, 2)), "[7,7,7,7]"}, {build("Expand", g.Ints(7), size), "[?]"},
		{build("ReduceProd", size), "[3*B]"}, {build("ReduceProd", matrix), "[720]"},
		{build("Range", g.Scalar64(7), g.Scalar64(1), g.Scalar64(-2)), "[7,5,3]"},
		{build("Range", g.Scalar64(1), g.Scalar64(8), g.Scalar64(3)), "[1,4,7]"},
		{apply("ConstantOfShape", fill(graph.Int64, 9), g.Ints(3)), "[9,9,9]"},
		{apply("ConstantOfShape", fill(graph.Int64, 9), g.Ints(0)), "[]"},
		{apply("ConstantOfShape", fill(graph.Int64, 9), g.Ints(2, 2)), "[9,9,9,9]"},
		{apply("ConstantOfShape", fill(graph.Int64, 9), size.Slice(0, 0, 1)), "[?]"},
		{matrix.T().Reshape(6), "[1,4,2,5,3,6]"}, {slice(a, 0, -1, -9, -2), "[7,2]"},
		{slice(a, 0, 9, 0, -1), "[7,5,2]"},
		{slice(a, 0, 1, 9, 2), "[2,7]"}, {slice(a, 0, -3, -1, 1), "[2,5]"},
		{slice(matrix, 1, 1, 3, 1).Reshape(4), "[2,3,5,6]"},
		{slice(matrix, 0, 1, 2, 1).Reshape(3), "[4,5,6]"}, {slice(matrix, 1, -1, -4, -2).Reshape(4), "[3,1,6,4]"},
	} {
		if got := fmt.Sprint(graph.Shape(c.n.ConstantInts())); got != c.want || g.Err() != nil {
			t.Errorf("%d: %v is %s, want %s (%v)", i, c.n, got, c.want, g.Err())
		}
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
