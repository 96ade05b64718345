package graph_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

// TestDimArithmetic checks the laws that inference needs, for products of numbers and symbols.
func TestDimArithmetic(t *testing.T) {
	dim := rapid.Custom(func(t *rapid.T) graph.Dim {
		d := graph.StaticDim(rapid.IntRange(1, 9).Draw(t, "n"))
		for range rapid.IntRange(0, 3).Draw(t, "factors") {
			d = d.Mul(graph.Sym(rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "symbol")))
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := dim.Draw(t, "a"), dim.Draw(t, "b"), dim.Draw(t, "c")
		n := graph.StaticDim(rapid.IntRange(-5, 5).Draw(t, "k"))
		if a.Mul(b) != b.Mul(a) || a.Mul(b).Mul(c) != a.Mul(b.Mul(c)) {
			t.Fatal("products depend on order")
		}
		if q, ok := a.Mul(b).Div(b); !ok || q != a {
			t.Fatalf("%v*%v/%v = %v %v", a, b, b, q, ok)
		}
		if a.Add(b) != b.Add(a) {
			t.Fatalf("%v+%v depends on order", a, b)
		}
		if a.Add(n).Sub(n) != a || a.Sub(n).Add(n) != a {
			t.Fatalf("%v+%v-%v = %v", a, n, n, a.Add(n).Sub(n))
		}
		if !a.Sub(a).Is(0) {
			t.Fatalf("%v-%v = %v", a, a, a.Sub(a))
		}
	})
}

func TestDimsStayBounded(t *testing.T) {
	d, e := graph.Sym("A").Add(graph.Sym("B")), graph.StaticDim(math.MaxInt/2)
	for range 100 {
		d = d.Mul(d).Add(graph.Sym("C"))
	}
	if len(d.Sym) > 1000 {
		t.Errorf("a symbol of %d characters", len(d.Sym))
	}
	if p := e.Mul(graph.StaticDim(4)); p.Static() || !strings.Contains(p.Sym, "4") {
		t.Errorf("a product beyond the integers is %v", p)
	}
}

// By hand. A symbol in parentheses is a sum; numbers that are added to it join, and products inside are kept.
func TestDims(t *testing.T) {
	n, a, b := graph.StaticDim, graph.Sym("A"), graph.Sym("B")
	two := n(2).Mul(a)
	for i, c := range []struct{ got, want string }{
		{two.String(), "2*A"}, {a.Mul(b).Mul(n(3)).String(), "3*A*B"}, {a.Mul(n(0)).String(), "0"},
		{two.Add(n(1)).String(), "(2·A+1)"}, {two.Add(n(1)).Add(n(2)).String(), "(2·A+3)"},
		{two.Add(n(1)).Sub(n(1)).String(), "2*A"}, {two.Sub(n(3)).String(), "(2·A-3)"},
		{n(4).Add(a).String(), "(A+4)"},
		{b.Add(a).String(), "(A+B)"}, {b.Sub(a).String(), "(B-A)"}, {n(1).Sub(a).String(), "(1-A)"},
		{a.Add(b).Add(n(1)).String(), "((A+B)+1)"}, {a.Add(n(1)).Mul(n(2)).Add(n(1)).String(), "(2·(A+1)+1)"},
		{graph.Sym("(-1)").Add(n(1)).String(), "((-1)+1)"},
		{a.Add(n(0)).String(), "A"}, {two.Sub(a).String(), "A"}, {a.Add(a).String(), "2*A"},
		{graph.Shape(nil).String(), "[?]"}, {graph.Shape{}.String(), "[]"},
		{graph.Shape{two, n(3)}.String(), "[2*A,3]"},
		{graph.Shape{two, n(3)}.Size().String(), "6*A"}, {graph.Shape{}.Size().String(), "1"},
	} {
		if c.got != c.want {
			t.Errorf("%d: %s, want %s", i, c.got, c.want)
		}
	}
	for i, c := range []struct {
		of, by graph.Dim
		want   string
	}{
		{n(6), n(3), "2"}, {n(7), n(3), ""}, {n(6), n(0), ""}, {n(0), n(3), "0"}, {a.Mul(n(6)), two, "3"},
		{two, a.Mul(n(4)), ""}, {a, b, ""}, {n(2), a, ""}, {a.Mul(b), a, "B"},
	} {
		got := ""
		if q, ok := c.of.Div(c.by); ok {
			got = q.String()
		}
		if got != c.want {
			t.Errorf("%d: %v/%v is %q, want %q", i, c.of, c.by, got, c.want)
		}
	}
	for i, c := range []struct {
		a, b graph.Shape
		want string
	}{
		{graph.Static(2, 3), graph.Static(3), "[2,3]"}, {graph.Static(1, 3), graph.Static(2, 1), "[2,3]"},
		{graph.Static(2), graph.Static(3), "[2] and [3] do not broadcast"}, {nil, graph.Static(1), "[?]"},
		{graph.Static(1), nil, "[?]"}, {graph.Shape{a}, graph.Static(3), "[3]"},
		{graph.Static(3), graph.Shape{a}, "[3]"},
		{graph.Shape{a}, graph.Static(1), "[A]"}, {graph.Shape{a}, graph.Shape{a}, "[A]"},
		{graph.Shape{a}, graph.Shape{b}, "[(max(A,B))]"}, {graph.Shape{}, graph.Static(2), "[2]"},
	} {
		s, err := graph.Broadcast(c.a, c.b)
		got := s.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
	for axis, want := range map[int]int{0: 0, 2: 2, -1: 2, -3: 0, 3: -1, -4: -1} {
		if got, err := graph.Axis(axis, 3); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("axis %d is %d, %v", axis, got, err)
		}
	}
	g := graph.New() // at most 2^33 elements
	x := g.Input("x", graph.Float, graph.Static(1))
	if y := x.Expand(1<<20, 1<<13); g.Err() != nil || y.Shape().String() != "[1048576,8192]" {
		t.Error(y.Shape(), g.Err())
	}
	if x.Expand(1<<20, 1<<13, 0); g.Err() != nil {
		t.Error(g.Err())
	}
	x.Expand(1<<20, 1<<13+1)
	goldentest.WantError(t, g.Err(), "of more than 8589934592 elements")
	leaky := x.Graph().Apply(graph.Standard, "LeakyRelu", graph.Attrs{"alpha": graph.Attr(0.5)}, x).Op()
	if leaky.Attrs.Float("alpha", 1) != 0.5 || leaky.Attrs.Float("beta", 0.1) != float64(float32(0.1)) {
		t.Error("numbers of attributes")
	}
}
