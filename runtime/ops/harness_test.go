package ops_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

type (
	node  = graph.Node
	attrs = graph.Attrs
)

// bench builds the operator of a case: it creates inputs together with their values at the point of the check.
type bench struct {
	*graph.Graph
	batch    int // size of the symbol B in this run
	symbolic bool
	feeds    tensor.Map
	wrt      []string
	random   *rand.Rand
}

const symB = -1 // as a size: the symbol B

// x declares an input with distinct values evenly spread over [-2, 2.2], in random order, and checks its gradient.
func (b *bench) x(name string, sizes ...int) node {
	b.wrt = append(b.wrt, name)
	return b.constant(name, sizes...)
}

// constant declares an input whose gradient is not checked.
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

// zero declares an input that begins with 0.
func (b *bench) zero(name string, sizes ...int) node {
	n := b.x(name, sizes...)
	b.feeds[name].Data[0] = 0
	return n
}

// ints declares an integer input.
func (b *bench) ints(name string, values []int64, sizes ...int) node {
	b.feeds[name] = tensor.OfInts(values, sizes...)
	return b.Input(name, graph.Int64, graph.Static(sizes...))
}

func (b *bench) op(kind string, at attrs, in ...node) node {
	return b.Apply(graph.Standard, kind, at, in...)
}

type gradientCase struct {
	kind, name string
	build      func(b *bench) []node
	step       float64
}

// small is a step that stays between the jumps of the derivatives of piecewise functions, at the points of bench.
const small = 0.003

func one(f func(b *bench) node) func(b *bench) []node {
	return func(b *bench) []node { return []node{f(b)} }
}

// ofInputs is a case of an operator over inputs x, a, b, ... of the given sizes; an input of nil sizes is omitted.
func ofInputs(domain, kind, name string, at attrs, sizes ...[]int) gradientCase {
	c := gradientCase{kind, name, one(func(b *bench) node {
		in := []node{b.x("x", sizes[0]...)}
		for i, s := range sizes[1:] {
			if s == nil {
				in = append(in, node{})
				continue
			}
			in = append(in, b.x(string(rune('a'+i)), s...))
		}
		return b.Apply(domain, kind, at, in...)
	}), 0}
	if domain != graph.Standard {
		c.kind = domain + "." + kind
	}
	return c
}

var (
	gradientCases []gradientCase
	shapeCases    []shapeCase
	witnessList   []witness
)

// gradients, shapes and witnesses add the cases of a family.
func gradients(list ...gradientCase) { gradientCases = append(gradientCases, list...) }
func shapes(list ...shapeCase)       { shapeCases = append(shapeCases, list...) }
func witnesses(list ...witness)      { witnessList = append(witnessList, list...) }

func runCase(t *testing.T, c gradientCase) {
	for _, batch := range []int{1, 3} {
		b := &bench{Graph: graph.New(), batch: batch, feeds: tensor.Map{}, random: rand.New(rand.NewPCG(7, 7))}
		var outputs []graph.Output
		found := false
		for i, n := range c.build(b) {
			outputs = append(outputs, graph.Output{Name: fmt.Sprint("out", i), Node: n})
		}
		goldentest.NoError(t, b.Err())
		for _, o := range outputs {
			for _, op := range graph.Reachable(o.Node) {
				found = found || op.Kind == c.kind || op.Domain+"."+op.Kind == c.kind
			}
		}
		if !found {
			t.Fatalf("the case holds no %s", c.kind)
		}
		var models []*onnx.ModelProto // and of the gradient
		write := func(given ...graph.Output) (*onnx.ModelProto, error) {
			m, err := graph.Model(given...)
			models = append(models, m)
			if err == nil && slices.ContainsFunc(m.Graph.Node, orttest.OfCPU) {
				orttest.RequireCPU(t)
			}
			return m, err
		}
		results, err := gradtest.Check(context.Background(), outputs, b.wrt, b.feeds, gradtest.Options{Step: c.step,
			Write: write})
		if err != nil && strings.Contains(err.Error(), "Can't reduce on dim with value of 0") {
			orttest.RequireCPU(t) // CUDA refuses the sum of no elements
		}
		if err != nil {
			t.Fatalf("B=%d: %v", batch, err)
		}
		b.checkFixed(t, models, strings.Contains(c.name, "at run time"))
		isKernel := func(n *onnx.NodeProto) bool { return n.OpType == "LayerNormGrad" }
		if c.name == "kernel of the gradient" && !slices.ContainsFunc(models[1].Graph.Node, isKernel) {
			t.Error("the gradient has no kernel")
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

// checkFixed compares the model of a case and that of its gradient with their forms of fixed sizes, which read no shape
// unless an input is one.
func (b *bench) checkFixed(t *testing.T, models []*onnx.ModelProto, readsShapes bool) {
	t.Helper()
	all := maps.Clone(b.feeds)
	for _, m := range models {
		feeds := tensor.Map{}
		for _, in := range m.Graph.Input {
			feeds[in.Name] = all[in.Name]
		}
		out, fixed := orttest.RunFixed(t, m, "", feeds)
		if sizes, _ := orttest.OffDevice(fixed); len(sizes) > 0 && !readsShapes {
			t.Errorf("with fixed sizes it has %q", sizes)
		}
		for name, y := range out {
			all[grad.Cotangent+name] = y
		}
	}
}

// TestGradients compares every gradient with central differences run by ONNX Runtime.
func TestGradients(t *testing.T) {
	have := map[string]bool{}
	for _, c := range gradientCases {
		have[c.kind] = true
		t.Run(c.kind+"/"+c.name, func(t *testing.T) { runCase(t, c) })
	}
	for _, d := range graph.Defs() {
		if d.Differentiable() && !have[d.Name()] {
			t.Errorf("the gradient of %s has no finite-difference case", d.Name())
		}
	}
}

// witness is a file of tools/golden/operators.py: the inputs of an operator, its output y, and PyTorch's gradient
// grad/NAME of the sum of c y with respect to each input.
type witness struct {
	file, kind string
	at         attrs
	inputs     []string
}

// TestWitnesses compares outputs and gradients with PyTorch's.
func TestWitnesses(t *testing.T) {
	for _, w := range witnessList {
		var want tensor.Map
		goldentest.ReadJSON(t, "testdata/"+w.file, &want)
		g := graph.New()
		var in []node
		for _, name := range w.inputs {
			in = append(in, g.Input(name, graph.Float, graph.Static(want[name].Shape...)))
		}
		y := g.Apply(graph.Standard, w.kind, w.at, in...)
		dx, err := grad.VJP([]node{y}, []node{g.Input("c", graph.Float, y.Shape())}, in...)
		goldentest.NoError(t, err)
		outputs := []graph.Output{{Name: "y", Node: y}}
		for i, d := range dx {
			outputs = append(outputs, graph.Output{Name: "grad/" + w.inputs[i], Node: d})
		}
		model := orttest.Model(t, outputs...)
		feeds := tensor.Map{"c": want["c"]}
		for _, name := range w.inputs {
			feeds[name] = want[name]
		}
		got := orttest.RunOnce(t, model, ort.Options{}, feeds)
		for _, o := range outputs {
			for i, v := range want[o.Name].Data {
				d, limit := math.Abs(float64(got[o.Name].Data[i]-v)), orttest.Tolerance(1e-5)*want[o.Name].MaxAbs()
				if !(d <= limit) {
					t.Fatalf("%s: %s[%d] is off by %.2g", w.kind, o.Name, i, d)
				}
			}
		}
	}
}

// shapeCase is derived by hand from the ONNX operator specification. An input is a shape (S is a symbol, nil an
// unknown rank) or the elements of an integer vector; want is the shape of the first output or an error.
type shapeCase struct {
	kind string
	at   attrs
	in   []any
	want string
}

func parse(s string) graph.Shape {
	out := graph.Shape{}
	for _, c := range s {
		switch {
		case c == ',':
		case c == 'S':
			out = append(out, graph.Sym("S"))
		default:
			out = append(out, graph.StaticDim(int(c-'0')))
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
			case nil:
				in = append(in, g.Input(fmt.Sprint("x", i), graph.Float, nil))
			case int:
				in = append(in, g.Scalar64(v))
			case []int:
				in = append(in, g.Ints(v...))
			}
		}
		n := g.Apply(graph.Standard, c.kind, c.at, in...)
		got := fmt.Sprint(n.Shape())
		if g.Err() != nil {
			got = g.Err().Error()
		}
		if c.kind == "NonZero" {
			got = got[:3] + c.want[3:]
		}
		if got != c.want {
			t.Errorf("%s over %v: %s, want %s", c.kind, c.in, got, c.want)
		}
	}
}
