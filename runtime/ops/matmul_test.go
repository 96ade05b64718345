package ops_test

import (
	"fmt"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"MatMul", nil, []any{"5,2,4", "4,3"}, "[5,2,3]"},
		shapeCase{"MatMul", nil, []any{"4", "4"}, "[]"},
		shapeCase{"MatMul", nil, []any{"S,4", "4,3"}, "[S,3]"},
		shapeCase{"MatMul", nil, []any{"2,4", "5,3"}, "MatMul([2,4], [5,3]): inner sizes 4 and 5 differ"},
		shapeCase{"Gemm", attrs{"transA": graph.Attr(1), "transB": graph.Attr(1)}, []any{"4,2", "3,4", "3"}, "[2,3]"},
		shapeCase{"Gemm", nil, []any{"2,4", "4,3", "2"}, "Gemm([2,4], [4,3], [2]): bias [2] does not fit [2,3]"},
		shapeCase{"Einsum", attrs{"equation": graph.Attr("bhqd,bhkd->bhqk")}, []any{"S,2,3,4", "S,2,5,4"}, "[S,2,3,5]"},
		shapeCase{"Einsum", attrs{"equation": graph.Attr("...?->")}, []any{"3"}, "[]"},
		shapeCase{"Einsum", attrs{"equation": graph.Attr("ij,jk->ik")}, []any{"2,3", "4,5"},
			"Einsum([2,3], [4,5]): index j is 3 and 4"},
	)
	gradients(matMulCases()...)
	gradients(gemmCases()...)
	gradients(einsumCases()...)
}

func matMulCases() []gradientCase {
	var out []gradientCase
	for _, s := range [][2][]int{
		{{4}, {4}}, {{4}, {4, 3}}, {{2, 4}, {4}}, {{2, 4}, {4, 3}}, {{5, 2, 4}, {4, 3}}, {{5, 2, 4}, {5, 4, 3}},
		{{2, 4}, {5, 4, 3}},
		{{5, 1, 2, 4}, {3, 4, 3}}, {{4}, {5, 4, 3}}, {{5, 2, 4}, {4}}, {{symB, 2, 4}, {4, 3}}, {{symB, 2, 4},
			{1, 4, 3}}, {{symB, 4}, {4, 3}},
		{{symB, 2, 4}, {3, 4, 3}}, {{2, symB}, {symB, 3}},
	} {
		out = append(out, gradientCase{"MatMul", fmt.Sprint(s[0], s[1]), one(func(b *bench) node {
			return b.x("a", s[0]...).MatMul(b.x("b", s[1]...))
		}), 0})
	}
	for _, t := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		for _, s := range [][2][]int{{{2, 4}, {4, 3}}, {{5, 2, 4}, {4, 3}}, {{5, 2, 4}, {5, 4, 3}}, {{symB, 2, 4},
			{4, 3}}, {{4}, {4, 3}}, {{2, 4}, {4}}} {
			if t[0] == 1 && len(s[1]) == 1 {
				continue // ONNX Runtime 1.24 to 1.30 does not transpose before a vector
			}
			out = append(out, gradientCase{graph.Microsoft + ".FusedMatMul", fmt.Sprint(t, s[0], s[1]),
				one(func(b *bench) node {
					return b.Apply(graph.Microsoft, "FusedMatMul", attrs{"transA": graph.Attr(t[0]),
						"transB": graph.Attr(t[1]),
						"alpha":  graph.Attr(0.5)},
						b.x("a", flip(s[0], t[0])...), b.x("b", flip(s[1], t[1])...))
				}), 0})
		}
	}
	return append(out, gradientCase{"MatMul", "double", one(func(b *bench) node {
		return b.x("a", 5, 2, 4).Cast(graph.Double).MatMul(b.x("b", 4, 3).Cast(graph.Double)).Cast(graph.Float)
	}), 0})
}

func flip(s []int, trans int) []int {
	out := append([]int{}, s...)
	if n := len(s); trans == 1 && n > 1 {
		out[n-1], out[n-2] = s[n-2], s[n-1]
	}
	return out
}

func gemmCases() []gradientCase {
	var out []gradientCase
	for _, t := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		for _, c := range [][]int{nil, {3}, {2, 1}, {1, 3}, {}} {
			out = append(out, gradientCase{"Gemm", fmt.Sprint(t, c, c == nil), one(func(b *bench) node {
				in := []node{b.x("a", flip([]int{2, 4}, t[0])...), b.x("b", flip([]int{4, 3}, t[1])...)}
				if c != nil {
					in = append(in, b.x("c", c...))
				}
				return b.op("Gemm", attrs{"transA": graph.Attr(t[0]), "transB": graph.Attr(t[1]),
					"alpha": graph.Attr(0.5),
					"beta":  graph.Attr(1.5)}, in...)
			}), 0})
		}
	}
	return append(out, gradientCase{"Gemm", "symbol", one(func(b *bench) node {
		return b.x("a", symB, 4).Linear(b.x("w", 3, 4), b.x("b", 3))
	}), 0})
}

func einsumCases() []gradientCase {
	var out []gradientCase
	for _, e := range []struct {
		eq     string
		shapes [][]int
	}{
		{"bhqd,bhkd->bhqk", [][]int{{2, 2, 3, 4}, {2, 2, 5, 4}}}, {"ij,jk->ik", [][]int{{symB, 4}, {4, 3}}},
		{"i,j->ij", [][]int{{3}, {4}}},
		{"ij,j->i", [][]int{{3, 4}, {4}}}, {"ij,kj->k", [][]int{{3, 4}, {2, 4}}}, {"ij->ji", [][]int{{3, 4}}},
		{"ij->j", [][]int{{symB, 4}}},
		{"ab,bc,cd->ad", [][]int{{2, 3}, {3, 4}, {4, 2}}},
	} {
		out = append(out, gradientCase{"Einsum", e.eq, one(func(b *bench) node {
			var in []node
			for i, s := range e.shapes {
				in = append(in, b.x(string(rune('a'+i)), s...))
			}
			return b.op("Einsum", attrs{"equation": graph.Attr(e.eq)}, in...)
		}), 0})
	}
	return append(out,
		ofInputs(graph.Standard, "Einsum", "implicit output", attrs{"equation": graph.Attr("bi,ij")}, []int{3, 4},
			[]int{4, 5}),
		gradientCase{"Einsum", "ellipsis", one(func(b *bench) node {
			return b.op("Einsum", attrs{"equation": graph.Attr("...ij,jk->...ik")}, b.x("x", symB, 2, 3, 4), b.x("w",
				4, 5))
		}), 0})
}
