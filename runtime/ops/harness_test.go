package ops_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

type node = graph.Node

// bench is where a case builds its operator: it makes inputs together with the point of the check.
type bench struct {
	*graph.Graph
	batch    int // what the symbol B is in this run
	symbolic bool
	feeds    tensor.Map
	wrt      []string
	random   *rand.Rand
}

const symB = -1 // as a size: the symbol B

// x declares an input with distinct values spread evenly over [-2, 2.2], in random order, and asks for its gradient.
func (b *bench) x(name string, sizes ...int) node {
	b.wrt = append(b.wrt, name)
	return b.constant(name, sizes...)
}

// constant declares an input whose gradient is not asked for.
func (b *bench) constant(name string, sizes ...int) node {
	shape, actual := graph.Static(sizes...), append([]int{}, sizes...)
	for i, n := range sizes {
		if n == symB {
			shape[i], actual[i], b.symbolic = graph.Sym("B"), b.batch, true
		}
	}
	t := tensor.New(actual...)
	for i, p := range b.random.Perm(t.Len()) {
		t.Data[i] = (float32(p)+0.5)/float32(t.Len())*4.2 - 2
	}
	b.feeds[name] = t
	return b.Input(name, graph.Float, shape)
}

// positive declares an input with values from 0.5 to 2.6.
func (b *bench) positive(name string, sizes ...int) node {
	n := b.x(name, sizes...)
	for i, v := range b.feeds[name].Data {
		b.feeds[name].Data[i] = v/2 + 1.5
	}
	return n
}

// ints declares an integer input.
func (b *bench) ints(name string, values []int64, sizes ...int) node {
	b.feeds[name] = tensor.OfInts(values, sizes...)
	return b.Input(name, graph.Int64, graph.Static(sizes...))
}

func (b *bench) op(kind string, attrs graph.Attrs, in ...node) node {
	return b.Apply(graph.Standard, kind, attrs, in...)
}

type ruleCase struct {
	kind, name string
	build      func(b *bench) []node
	step       float64
}

// small is a step short enough to stay between the kinks of piecewise functions at the points that bench makes.
const small = 0.003

func one(f func(b *bench) node) func(b *bench) []node {
	return func(b *bench) []node { return []node{f(b)} }
}

func runCase(t *testing.T, c ruleCase) {
	for _, batch := range []int{1, 3} {
		b := &bench{Graph: graph.New(), batch: batch, feeds: tensor.Map{}, random: rand.New(rand.NewPCG(7, 7))}
		var outputs []graph.Output
		found := false
		for i, n := range c.build(b) {
			outputs = append(outputs, graph.Output{Name: fmt.Sprint("out", i), Node: n})
		}
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
		for _, o := range outputs {
			for _, op := range graph.Reachable(o.Node) {
				found = found || op.Kind == c.kind || op.Domain+"."+op.Kind == c.kind
			}
		}
		if !found {
			t.Fatalf("the case holds no %s", c.kind)
		}
		results, err := gradtest.Check(context.Background(), outputs, b.wrt, b.feeds, gradtest.Options{Step: c.step})
		if err != nil {
			t.Fatalf("B=%d: %v", batch, err)
		}
		for _, r := range results {
			if r.RelErr > 2e-3 {
				t.Errorf("B=%d: input %s: relative error %.2g", batch, r.Input, r.RelErr)
			}
		}
		if !b.symbolic {
			return
		}
	}
}

// TestRules compares every rule with central differences run by ONNX Runtime.
func TestRules(t *testing.T) {
	have := map[string]bool{}
	for _, cases := range [][]ruleCase{elementwiseCases, linearCases, windowCases, moveCases, reduceCases,
		loweredCases(), selectCases()} {
		for _, c := range cases {
			have[c.kind] = true
			t.Run(c.kind+"/"+c.name, func(t *testing.T) { runCase(t, c) })
		}
	}
	for _, d := range graph.Defs() {
		if d.Differentiable() && !have[d.Name()] {
			t.Errorf("the gradient of %s has no finite-difference case", d.Name())
		}
	}
}

func floats(v []float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
