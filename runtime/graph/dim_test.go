package graph_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
