package clip_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/kernels"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

const sos, eot, stop = 49406, 49407, 269

// classes returns n classes with names of 1 to 5 tokens.
func classes(t testing.TB, n, width int) *clip.Suffixes {
	t.Helper()
	var names []string
	var ids [][]int
	for c := range n {
		var list []int
		for j := range 1 + c*7%5 {
			list = append(list, 1000+17*c+j)
		}
		names, ids = append(names, fmt.Sprintf("class %d", c)), append(ids, append(list, stop, eot))
	}
	s, err := clip.NewSuffixes(names, ids, clip.SpecialTokens{SOS: sos}, width, embedding(width))
	goldentest.NoError(t, err)
	return s
}

// sequence assembles [SOS ctx name . EOT pad...] for the plain form, with the given position of the class name.
func sequence(t testing.TB, g *graph.Graph, s *clip.Suffixes, p clip.Prompt, width, length int) (emb, read graph.Node) {
	t.Helper()
	look := embedding(width)
	row := func(id int) graph.Node {
		v, err := look([]int{id})
		goldentest.NoError(t, err)
		return g.Const(tensor.Of(v, 1, width))
	}
	n := p.Ctx.Dim(0)
	half := map[clip.Position]int{clip.End: n, "": n, clip.Middle: n / 2, clip.Front: 0}[p.Class]
	var all []graph.Node
	var at []int
	for _, ids := range s.IDs {
		parts := []graph.Node{row(sos)}
		if half > 0 {
			parts = append(parts, p.Ctx.Slice(0, 0, half))
		}
		for _, id := range ids[:len(ids)-2] {
			parts = append(parts, row(id))
		}
		if half < n {
			parts = append(parts, p.Ctx.Slice(0, half, n))
		}
		parts = append(parts, row(stop), row(eot))
		used := 1 + n + len(ids)
		at = append(at, used-1+p.ReadOffset)
		for range length - used {
			parts = append(parts, row(0))
		}
		all = append(all, graph.Concat(0, parts...))
	}
	return graph.Stack(all...), g.Ints(at...)
}

func compile(t testing.TB, o ort.Options, outputs ...graph.Output) *ort.Session {
	t.Helper()
	model := orttest.Model(t, outputs...)
	return orttest.Open(t, model, o)
}

// evaluate runs a graph whose weights lie in dir, as orttest.Run does. A tower of published size has the operators of a
// small one and is not run again with fixed sizes.
func evaluate(t testing.TB, dir string, in tensor.Map, outputs ...graph.Output) tensor.Map {
	t.Helper()
	model := orttest.Model(t, outputs...)
	if info, err := os.Stat(filepath.Join(dir, "weights")); err != nil || info.Size() < 16<<20 {
		return orttest.Run(t, model, dir, in)
	}
	return orttest.RunOnce(t, model, ort.Options{WeightsDir: dir}, in)
}

// near checks that the largest difference is at most tol of the largest value; see orttest.Tolerance.
func near(t testing.TB, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	diff, top, tol := 0.0, 0.0, orttest.Tolerance(tol)
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if !(d <= diff) {
			diff = d
		}
		top = max(top, math.Abs(float64(want[i])))
	}
	if !(diff <= tol*top) || top == 0 {
		t.Errorf("%s: largest difference %.3g, largest value %.3g, quotient %.3g > %.1g", what, diff, top, diff/top,
			tol)
	}
}

var tiny = clip.TextArch{Width: 64, Layers: 3, Heads: 2, Context: 77, EmbedDim: 48}

// The plain form on the assembled sequences is the reference for the cheap form, with kernels and without;
// golden_test.go compares the plain form with PyTorch.
func TestPromptsEqualPlain(t *testing.T) {
	cases := []struct {
		name    string
		classes int
		layers  int
		act     string
		prompts []clip.Prompt // Ctx is made from T below
		t       []int
	}{
		{name: "one prompt", classes: 6, layers: 3, prompts: []clip.Prompt{{}}, t: []int{4}},
		{name: "many classes", classes: 120, layers: 3, prompts: []clip.Prompt{{}}, t: []int{16}},
		{name: "gelu", classes: 5, layers: 2, act: "gelu", prompts: []clip.Prompt{{}}, t: []int{3}},
		{name: "one class", classes: 1, layers: 2, prompts: []clip.Prompt{{}}, t: []int{1}},
		{name: "one block", classes: 23, layers: 1, prompts: []clip.Prompt{{}, {ReadOffset: 1}}, t: []int{2, 5}},
		{name: "one block, few rows", classes: 4, layers: 1, prompts: []clip.Prompt{{}, {ReadOffset: 2}},
			t: []int{2, 5}}, {name: "few rows beside many", classes: 98, layers: 2, prompts: []clip.Prompt{{}, {},
			{ReadOffset: 1}}, t: []int{3, 40, 2}},
		{name: "few rows beside many in one block", classes: 98, layers: 1, prompts: []clip.Prompt{{}, {}},
			t: []int{40, 3}},
		{name: "several prompts", classes: 30, layers: 3, prompts: []clip.Prompt{{}, {ReadOffset: 4}, {}},
			t: []int{16, 4, 9}},
		{name: "equal lengths", classes: 70, layers: 3, prompts: []clip.Prompt{{}, {ReadOffset: 1}, {}, {}},
			t: []int{9, 9, 4, 9}},
		{name: "equal lengths, few rows", classes: 5, layers: 1, prompts: []clip.Prompt{{}, {}}, t: []int{3, 3}},
		{name: "places", classes: 7, layers: 2, prompts: []clip.Prompt{{Class: clip.Middle}, {Class: clip.End},
			{Class: clip.Front, ReadOffset: 2}}, t: []int{5, 5, 4}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			arch := tiny
			arch.Layers, arch.Activation = c.layers, c.act
			w := formulaWeights(arch.Shapes())
			s := classes(t, c.classes, arch.Width)
			in, text := tensor.Map{}, clip.Text{TextArch: arch}
			compute := func(build func(*graph.Graph) []graph.Node, kernels bool) tensor.Map {
				g := graph.New()
				if kernels {
					g.UseKernels(graph.CPUKernels)
				}
				var wrt []graph.Node
				for i := range c.prompts {
					name := fmt.Sprintf("ctx%d", i)
					in[name] = formula(name, []int{c.t[i], arch.Width})
					c.prompts[i].Ctx = g.Input(name, graph.Float, graph.Static(c.t[i], arch.Width))
					wrt = append(wrt, c.prompts[i].Ctx)
				}
				f, cot := build(g), g.Const(formula("cotangent", []int{c.classes, arch.EmbedDim}))
				loss := g.Scalar(0)
				for i := range f {
					loss = loss.Add(f[i].Mul(cot).Sum())
				}
				d := orttest.Gradients(t, loss, wrt...)
				var out []graph.Output
				for i := range f {
					out = append(out, graph.Output{Name: fmt.Sprintf("feature%d", i), Node: f[i]},
						graph.Output{Name: fmt.Sprintf("grad%d", i), Node: d[i]})
				}
				return evaluate(t, "", in, out...)
			}
			want := compute(func(g *graph.Graph) (plain []graph.Node) {
				for _, p := range c.prompts {
					emb, read := sequence(t, g, s, p, arch.Width, arch.Context)
					plain = append(plain, text.Plain(w, emb, read))
				}
				return plain
			}, false)
			for _, kernels := range []bool{false, true} {
				if kernels {
					orttest.RequireCPU(t)
				}
				got := compute(func(g *graph.Graph) []graph.Node { return text.Prompts(g, w, s, c.prompts) }, kernels)
				for name := range want {
					near(t, fmt.Sprintf("kernels %v: %s", kernels, name), got[name].Data, want[name].Data, 1e-5)
				}
			}
		})
	}
}

// With prompts for each class, class c has the features that it has with its own prompt for all classes.
func TestPromptsPerClass(t *testing.T) {
	const n, tokens = 6, 5
	text, w, s := clip.Text{TextArch: tiny}, formulaWeights(tiny.Shapes()), classes(t, n, tiny.Width)
	all := formula("contexts", []int{n, tokens, tiny.Width})
	for _, p := range []clip.Prompt{{}, {Class: clip.Middle}, {Class: clip.Front}, {ReadOffset: 2}} {
		g := graph.New()
		each := g.Input("contexts", graph.Float, graph.Static(n, tokens, tiny.Width))
		p.Ctx, p.PerClass = each, true
		out := []graph.Output{{Name: "each", Node: text.Prompts(g, w, s, []clip.Prompt{p})[0]}}
		p.PerClass = false
		for c := range n {
			p.Ctx = each.Slice(0, c, c+1).Squeeze(0)
			out = append(out, graph.Output{Name: fmt.Sprint(c), Node: text.Prompts(g, w, s, []clip.Prompt{p})[0]})
		}
		got := evaluate(t, "", tensor.Map{"contexts": all}, out...)
		for c := range n {
			near(t, fmt.Sprintf("%+v, class %d", p.Class, c), got["each"].Row(c).Data, got[fmt.Sprint(c)].Row(c).Data,
				1e-5)
		}
	}
}

// By hand: one class of the name 1000, behind one of three prompt tokens and before two, and one token of padding.
func TestSequences(t *testing.T) {
	ctx := graph.New().Input("ctx", graph.Float, graph.Static(3, tiny.Width))
	_, ids, read := classes(t, 1, tiny.Width).Sequences(clip.Prompt{Ctx: ctx, Class: clip.Middle}, 8)
	if got := fmt.Sprint(ids, read); got != "[[-1 -1 1000 -1 -1 269 49407 0]] [6]" {
		t.Errorf("tokens and the positions that are read: %s", got)
	}
}

// A step of a device at ViT-B/16 size, with fixed sizes, has as many operators for 100 classes as for 10: see
// docs/measurements.md.
func TestOperatorsOfAStep(t *testing.T) {
	count := func(layers int, list clip.NamedClasses, set graph.KernelSet) int {
		text := clip.Text{TextArch: clip.TextB}
		text.Layers = layers
		s, err := clip.NewSuffixes(list.Names(), list.Suffixes(), clip.SpecialTokens{SOS: clip.StartID}, text.Width,
			embedding(text.Width))
		goldentest.NoError(t, err)
		g, in := graph.New(), tensor.Map{}
		g.UseKernels(set)
		p := prompted(g, 1, text.Width, in)
		f := text.Prompts(g, onDisk{"", map[string]int64{}, text.Shapes()}, s, p)[0]
		images := g.Input("images", graph.Float, graph.Static(32, text.EmbedDim))
		logits := images.MatMulT(f.L2Normalize()).MulScalar(100)
		loss := graph.CrossEntropy(logits, g.Input("labels", graph.Int64, graph.Static(32)))
		d := orttest.Gradients(t, loss, p[0].Ctx)
		m, err := graph.Model(graph.Output{Name: "loss", Node: loss.Reshape(1)}, graph.Output{Name: "d", Node: d[0]})
		if err == nil {
			m, err = graph.FixSizes(m, nil)
		}
		goldentest.NoError(t, err)
		return len(kernels.ForDevice(m, 0).Graph.Node)
	}
	for set, most := range map[graph.KernelSet]int{graph.DeviceKernels: 19, graph.NoKernels: 74} {
		few, many := count(12, clip.CIFAR10, set), count(12, clip.CIFAR100, set)
		block := few - count(11, clip.CIFAR10, set)
		t.Logf("set %d: %d operators for 10 classes, %d for 100, %d for a block", set, few, many, block)
		if many != few || block > most {
			t.Error("these are too many")
		}
	}
}
