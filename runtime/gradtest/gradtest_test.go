package gradtest_test

import (
	"context"
	"fmt"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// TestFindsWrongGradients checks x² (right) and x detach(x), which has the same value and half the gradient.
func TestFindsWrongGradients(t *testing.T) {
	check := func(build func(x graph.Node) graph.Node, o gradtest.Options) float64 {
		t.Helper()
		y := build(graph.New().Input("x", graph.Float, graph.Static(3)))
		r, err := gradtest.Check(context.Background(), []graph.Output{{Name: "y", Node: y}}, []string{"x"},
			tensor.Map{"x": tensor.Of([]float32{1, -2, 0.5}, 3)}, o)
		goldentest.NoError(t, err)
		return r[0].RelErr
	}
	for seed := range uint64(4) {
		o := gradtest.Options{Seed: seed}
		if e := check(graph.Node.Square, o); e > 1e-4 {
			t.Errorf("a right gradient is off by %g", e)
		}
		if e := check(func(x graph.Node) graph.Node { return x.Mul(x.Detach()) }, o); e < 0.3 ||
			e > 0.501 {
			t.Errorf("half the gradient is off by %g", e)
		}
		o.NonSmooth, o.Directions, o.Elements = true, 5, -1
		if e := check(func(x graph.Node) graph.Node { return x.Mul(x.Detach()) }, o); e < 0.1 {
			t.Errorf("half the gradient is off by %g only in the median", e)
		}
	}
}

// A gradient that is not finite is an error, which names the element.
func TestFiniteGradients(t *testing.T) {
	for i := range 2 {
		y := graph.New().Input("x", graph.Float, graph.Static(2)).Sqrt()
		at := tensor.Of([]float32{1, 1}, 2)
		at.Data[i] = 0
		_, err := gradtest.Check(t.Context(), []graph.Output{{Name: "y", Node: y}}, []string{"x"}, tensor.Map{"x": at},
			gradtest.Options{})
		if want := fmt.Sprintf(`the gradient of input "x" is not finite at element %d`, i); err == nil ||
			err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestNonSmooth(t *testing.T) {
	x := graph.New().Input("x", graph.Float, graph.Static(3))
	if gradtest.NonSmooth(graph.Output{Name: "y", Node: x.Exp()}) || !gradtest.NonSmooth(graph.Output{Name: "y",
		Node: x.ReLU().Exp()}) {
		t.Error("the slope of a rectifier jumps, that of an exponential does not")
	}
}
