package ops_test

import (
	"fmt"
	"testing"

	"promptfed/runtime/graph"
)

type attrs = graph.Attrs

// shapeCases are worked out by hand from the ONNX operator specification. An input is a shape (S is a symbol), or the
// content of an integer vector.
var shapeCases = []struct {
	kind  string
	attrs attrs
	in    []any
	want  string
}{
	{"Add", nil, []any{"2,1,3", "4,1"}, "[2,4,3]"},
	{"Mul", nil, []any{"S,3", "1,3"}, "[S,3]"},
	{"Add", nil, []any{"2,3", "2,4"}, "Add([2,3], [2,4]): [2,3] and [2,4] do not broadcast"},
	{"Where", nil, []any{"2,1", "3", "S,1,1"}, "[S,2,3]"},
	{"Equal", nil, []any{"2,1", "3"}, "[2,3]"},
	{"MatMul", nil, []any{"5,2,4", "4,3"}, "[5,2,3]"},
	{"MatMul", nil, []any{"4", "4"}, "[]"},
	{"MatMul", nil, []any{"S,4", "4,3"}, "[S,3]"},
	{"MatMul", nil, []any{"2,4", "5,3"}, "MatMul([2,4], [5,3]): inner sizes 4 and 5 differ"},
	{"Gemm", attrs{"transA": graph.Attr(1), "transB": graph.Attr(1)}, []any{"4,2", "3,4", "3"}, "[2,3]"},
	{"Gemm", nil, []any{"2,4", "4,3", "2"}, "Gemm([2,4], [4,3], [2]): bias [2] does not fit [2,3]"},
	{"Conv", attrs{"strides": graph.Attr([]int{2, 2}), "pads": graph.Attr([]int{1, 1, 1, 1})}, []any{"2,3,7,8", "4,3,3,3"}, "[2,4,4,4]"},
	{"Conv", nil, []any{"2,3,7,8", "4,2,3,3"}, "Conv([2,3,7,8], [4,2,3,3]): weights [4,2,3,3] in 1 groups do not fit"},
	{"Conv", nil, []any{"1,3,2,2", "4,3,3,3"}, "Conv([1,3,2,2], [4,3,3,3]): kernel [3 3] is larger than [1,3,2,2]"},
	{"ConvTranspose", attrs{"strides": graph.Attr([]int{2, 2}), "output_padding": graph.Attr([]int{1, 0})}, []any{"2,3,4,4", "3,2,3,3"},
		"[2,2,10,9]"},
	{"MaxPool", attrs{"kernel_shape": graph.Attr([]int{2, 2}), "strides": graph.Attr([]int{2, 2}), "ceil_mode": graph.Attr(1)}, []any{"1,2,5,4"},
		"[1,2,3,2]"},
	{"AveragePool", attrs{"kernel_shape": graph.Attr([]int{2, 2}), "strides": graph.Attr([]int{2, 2})}, []any{"S,2,5,4"}, "[S,2,2,2]"},
	{"GlobalAveragePool", nil, []any{"S,2,5,4"}, "[S,2,1,1]"},
	{"Reshape", nil, []any{"2,6", []int{3, -1}}, "[3,4]"},
	{"Reshape", nil, []any{"S,6", []int{0, 2, -1}}, "[S,2,3]"},
	{"Reshape", nil, []any{"S,6", []int{-1, 3}}, "[2*S,3]"},
	{"Reshape", nil, []any{"2,6", []int{5, -1}}, "Reshape([2,6], [2]): [2,6] does not divide into [5,-1]"},
	{"Reshape", nil, []any{"2,6", []int{5, 2}}, "Reshape([2,6], [2]): [2,6] has 12 elements, [5,2] has 10"},
	{"Flatten", attrs{"axis": graph.Attr(2)}, []any{"S,2,3,4"}, "[2*S,12]"},
	{"Transpose", attrs{"perm": graph.Attr([]int{2, 0, 1})}, []any{"S,3,4"}, "[4,S,3]"},
	{"Transpose", nil, []any{"2,3,4"}, "[4,3,2]"},
	{"Transpose", attrs{"perm": graph.Attr([]int{0, 0})}, []any{"2,3"}, "Transpose([2,3]): [0 0] is no permutation"},
	{"Squeeze", nil, []any{"1,S,1", []int{0, -1}}, "[S]"},
	{"Squeeze", nil, []any{"1,3,1"}, "[3]"},
	{"Squeeze", nil, []any{"2,3", []int{0}}, "Squeeze([2,3], [1]): axis 0 has size 2"},
	{"Unsqueeze", nil, []any{"S,3", []int{0, -1}}, "[1,S,3,1]"},
	{"Expand", nil, []any{"3,1", []int{2, 1, 4}}, "[2,3,4]"},
	{"Tile", nil, []any{"S,3", []int{2, 3}}, "[2*S,9]"},
	{"Concat", attrs{"axis": graph.Attr(-1)}, []any{"S,3", "2,4"}, "[2,7]"},
	{"Concat", attrs{"axis": graph.Attr(0)}, []any{"S,3", "1,3"}, "[(S+1),3]"},
	{"Concat", attrs{"axis": graph.Attr(0)}, []any{"2,3", "2,4"}, "Concat([2,3], [2,4]): axis 1 is 3 and 4"},
	{"Split", attrs{"axis": graph.Attr(1)}, []any{"2,6", []int{6}}, "[2,6]"},
	{"Split", nil, []any{"6,2", []int{5}}, "Split([6,2], [1]): sizes [5] of an axis of 6"},
	{"Slice", nil, []any{"5,7", []int{1}, []int{-1}, []int{1}}, "[5,5]"},
	{"Slice", nil, []any{"5,7", []int{-1}, []int{-100}, []int{1}, []int{-2}}, "[5,4]"},
	{"Slice", nil, []any{"S,7", []int{1}, []int{1 << 40}, []int{0}}, "[(S-1),7]"},
	{"Slice", nil, []any{"5", []int{0}, []int{1}, []int{0}, []int{0}}, "Slice([5], [1], [1], [1], [1]): step 0"},
	{"Pad", nil, []any{"2,S", []int{1, 0, 0, 2}}, "[3,(S+2)]"},
	{"Gather", attrs{"axis": graph.Attr(1)}, []any{"2,S,4", []int{0, 1, 0}}, "[2,3,4]"},
	{"Gather", nil, []any{"2,3", []int{5}}, "Gather([2,3], [1]): index 5 is outside an axis of 2"},
	{"GatherElements", nil, []any{"4,3", "2,3"}, "[2,3]"},
	{"GatherND", nil, []any{"4,3,5", "6,2"}, "[6,5]"},
	{"ScatterND", nil, []any{"4,3", "2,1", "2,3"}, "[4,3]"},
	{"OneHot", nil, []any{"S", []int{10}, "2"}, "[S,10]"},
	{"Shape", nil, []any{"S,3,4"}, "[3]"},
	{"Size", nil, []any{"S,3,4"}, "[]"},
	{"ConstantOfShape", nil, []any{[]int{2, 3}}, "[2,3]"},
	{"NonZero", nil, []any{"2,3"}, "[2,(nonzero1)]"},
	{"ReduceSum", attrs{"keepdims": graph.Attr(0)}, []any{"2,S,4", []int{-1, 0}}, "[S]"},
	{"ReduceMean", nil, []any{"2,S,4"}, "[1,1,1]"},
	{"ReduceMax", attrs{"noop_with_empty_axes": graph.Attr(1)}, []any{"2,S", []int{}}, "[2,S]"},
	{"ReduceMax", nil, []any{"2,3", []int{}}, "[1,1]"},
	{"ReduceSum", nil, []any{"2,3", []int{2}}, "ReduceSum([2,3], [1]): axis 2 is outside rank 2"},
	{"ArgMax", attrs{"axis": graph.Attr(1), "keepdims": graph.Attr(0)}, []any{"S,3"}, "[S]"},
	{"LayerNormalization", nil, []any{"S,3", "3"}, "[S,3]"},
	{"Softmax", nil, []any{"S,3"}, "[S,3]"},
	{"Cast", attrs{"to": graph.Attr(int(graph.Double))}, []any{"S,3"}, "[S,3]"},
	{"Einsum", attrs{"equation": graph.Attr("bhqd,bhkd->bhqk")}, []any{"S,2,3,4", "S,2,5,4"}, "[S,2,3,5]"},
	{"Einsum", attrs{"equation": graph.Attr("ij,jk->ik")}, []any{"2,3", "4,5"}, "Einsum([2,3], [4,5]): index j is 3 and 4"},
	{"Resize", nil, []any{"1,3,4,4", "0", "0", []int{1, 3, 8, 6}}, "[1,3,8,6]"},
	{"Range", nil, []any{2, 9, 3}, "[3]"},
	{"Mystery", nil, []any{"2,3"}, "[?]"},
}

func parse(s string) graph.Shape {
	out := graph.Shape{}
	for _, c := range s {
		switch {
		case c == ',':
		case c == 'S':
			out = append(out, graph.Sym("S"))
		default:
			out = append(out, graph.D(int(c-'0')))
		}
	}
	return out
}

func TestShapes(t *testing.T) {
	for _, c := range shapeCases {
		g := graph.New()
		var in []graph.Node
		for i, x := range c.in {
			switch v := x.(type) {
			case string:
				dtype := graph.Float
				if i == 0 && c.kind == "Where" {
					dtype = graph.Bool
				}
				in = append(in, g.Input(fmt.Sprint("x", i), dtype, parse(v)))
			case int:
				in = append(in, g.Scalar64(v))
			case []int:
				in = append(in, g.Ints(v...))
			}
		}
		n := g.Apply(graph.Standard, c.kind, c.attrs, in...)
		got := fmt.Sprint(n.Shape())
		if g.Err() != nil {
			got = g.Err().Error()
		}
		if c.kind == "NonZero" {
			got = got[:3] + c.want[3:]
		}
		if got != c.want {
			t.Errorf("%s%v%v: %s, want %s", c.kind, c.attrs, c.in, got, c.want)
		}
	}
}

// TestContents follows integer contents through the chains that exporters write around Reshape.
func TestContents(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.D(6), graph.D(8)})
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

// The list of outputs belongs to the caller: changing it changes neither the operator nor what asking again gives.
func TestOutputsAreTheCallers(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(4, 2))
	split := func() []graph.Node {
		return g.ApplyN(graph.Standard, "Split", graph.Attrs{"axis": graph.Attr(0)}, 2, x, g.Ints(1, 3))
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
