package exported_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Towers of every layout train by gradient files that WriteRecorded wrote: their features and gradients are PyTorch's.
// The files belong to the digest, and prompts inside the towers are refused.
func TestGradientFiles(t *testing.T) {
	onLayouts(t, func(t *testing.T, dir string, golden tensor.Map) {
		b, boxed := openBundle(t, specOf(dir)), filepath.Join(t.TempDir(), "boxed")
		goldentest.NoError(t, exported.WriteRecorded(b, boxed, true))
		again := openBundle(t, boxed)
		if again.Digest() == b.Digest() {
			t.Error("gradient files do not belong to the digest")
		}
		sameAs(t, again, golden)
		if again.Text.Layers != 0 {
			t.Errorf("%d blocks of the text tower can be reached", again.Text.Layers)
		}
		g := graph.New()
		p := clip.Prompt{Ctx: g.Input("ctx", graph.Float, graph.Static(2, 8)), NoPositions: true}
		_, err := again.Prompts(g, []string{"cat"}, []clip.Prompt{p})
		goldentest.WantErrorOf(t, "a prompt without positions", err, bundle.TextGradientFile)
	})
}

// step is a training step on images of known features: the gradient of a prompt [4,8] for three classes.
func step(t *testing.T, b *bundle.Bundle, images *tensor.Tensor) func(ctx *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(4, 8))
	text := bundletest.Prompts(t, b, g, []string{"cat", "the thing", "sea lion"}, clip.Prompt{Ctx: ctx})
	logits := g.Const(images).MatMulT(text[0].L2Normalize()).MulScalar(10)
	dx := orttest.Gradients(t, graph.CrossEntropy(logits, g.Ints(0, 1, 2, 0, 1, 2, 0, 1, 2)), ctx)
	model := orttest.Model(t, graph.Output{Name: "grad", Node: dx[0]})
	s := orttest.Open(t, model, ort.Options{WeightsDir: b.WeightsDir()})
	return func(ctx *tensor.Tensor) *tensor.Tensor {
		out, err := s.Run(context.Background(), tensor.Map{"ctx": ctx})
		goldentest.NoError(t, err)
		return out["grad"]
	}
}

// trained returns a prompt after ten steps with a rate of 0.5.
func trained(t *testing.T, b *bundle.Bundle, want tensor.Map) *tensor.Tensor {
	t.Helper()
	ctx, gradient := want["ctx"].Clone(), step(t, b, want["image"])
	for range 10 {
		ctx.Axpy(-0.5, gradient(ctx))
	}
	return ctx
}

// straightThrough is a text tower of rounded activations from PyTorch, with its gradient from torch.func.vjp, and a
// prompt that PyTorch trained for ten steps (tools/golden/gradient_file.py).
const straightThrough = "testdata/straight-through"

// A tower that rounds activations trains by the straight-through gradient that it brings, as in PyTorch.
func TestStraightThrough(t *testing.T) {
	mayRun(t)
	want := orttest.Golden(t, straightThrough+"/trained.safetensors")
	got := trained(t, openBundle(t, straightThrough), want)
	got.Axpy(-1, want["trained"])
	if d := got.MaxAbs(); d > 1e-5 {
		t.Errorf("the prompt differs by %g from PyTorch's", d)
	}
	want["ctx"].Axpy(-1, want["trained"])
	if d := want["ctx"].MaxAbs(); d < 0.1 {
		t.Errorf("PyTorch's prompt moved by %g only", d)
	}
}

// copyStraightThrough copies the bundle without its gradient file.
func copyStraightThrough(t *testing.T) string {
	t.Helper()
	dir := filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), straightThrough)
	goldentest.NoError(t, os.Remove(filepath.Join(dir, bundle.TextGradientFile)))
	return dir
}

// loop returns x after three turns through tanh(x w), in an ONNX Loop, which has no gradient rule.
func loop(t *testing.T, x, w graph.Node) graph.Node {
	t.Helper()
	value := func(name string, dtype graph.DType, rank int) *onnx.ValueInfoProto {
		shape := &onnx.TensorShapeProto{}
		for range rank {
			shape.Dim = append(shape.Dim, &onnx.TensorShapeProto_Dimension{})
		}
		return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
			TensorType: &onnx.TypeProto_Tensor{ElemType: int32(dtype), Shape: shape}}}}
	}
	node := func(kind, in, out string) *onnx.NodeProto {
		return &onnx.NodeProto{OpType: kind, Input: strings.Fields(in), Output: strings.Fields(out)}
	}
	turn := node("Loop", "turns yes x", "y")
	turn.Attribute = []*onnx.AttributeProto{{Name: "body", Type: onnx.AttributeProto_GRAPH, G: &onnx.GraphProto{
		Name: "turn", Node: []*onnx.NodeProto{node("Identity", "on", "goes"), node("MatMul", "h w", "product"),
			node("Tanh", "product", "next")},
		Input: []*onnx.ValueInfoProto{value("time", graph.Int64, 0), value("on", graph.Bool, 0),
			value("h", graph.Float, 3)},
		Output: []*onnx.ValueInfoProto{value("goes", graph.Bool, 0), value("next", graph.Float, 3)}}}}
	f, err := graph.ReadModel(&onnx.ModelProto{IrVersion: 8, OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}},
		Graph: &onnx.GraphProto{Name: "loop", Node: []*onnx.NodeProto{turn},
			Input: []*onnx.ValueInfoProto{value("x", graph.Float, 3), value("w", graph.Float, 2)},
			Initializer: []*onnx.TensorProto{{Name: "turns", DataType: int32(graph.Int64), Int64Data: []int64{3}},
				{Name: "yes", DataType: int32(graph.Bool), Int32Data: []int32{1}}},
			Output: []*onnx.ValueInfoProto{value("y", graph.Float, 3)}}})
	goldentest.NoError(t, err)
	in := f.Inputs()
	out, err := graph.Inline(x.Graph(), []graph.Node{f.Outputs[0].Node}, map[graph.Node]graph.Node{in[0]: x, in[1]: w})
	goldentest.NoError(t, err)
	return out[0].Reshape(-1, 32, 8)
}

// loopTower is a text tower: three turns of every token, the mean of all tokens up to the end token, and a projection.
func loopTower(turns func(x, w graph.Node) graph.Node, g *graph.Graph) (embeddings, text graph.Node) {
	embeddings = g.Input("embeddings", graph.Float, graph.Shape{graph.Sym("C"), graph.StaticDim(32),
		graph.StaticDim(8)})
	x := turns(embeddings, g.Const(bundle.Noise(8, 8)))
	next := g.Input("eot", graph.Int64, graph.Shape{graph.Sym("C")}).Add(g.Ints(1)).Unsqueeze(1)
	upTo := next.Greater(g.Ints(tensor.Indices(32)...)).Cast(graph.Float)
	mean := upTo.Unsqueeze(1).MatMul(x).Reshape(-1, 8).Div(next.Cast(graph.Float))
	return embeddings, mean.MatMul(g.Const(bundle.Noise(8, 6)))
}

// A tower with a Loop trains by the gradient file that it brings, like the tower without Loop by gradient rules.
// Without the file, the error names the operator.
func TestLoop(t *testing.T) {
	mayRun(t)
	unrolled := func(x, w graph.Node) graph.Node {
		for range 3 {
			x = x.MatMul(w).Tanh()
		}
		return x
	}
	looped := func(x, w graph.Node) graph.Node { return loop(t, x, w) }
	write := func(dir, name string, outputs ...graph.Output) {
		goldentest.NoError(t, bundle.WriteGraph(filepath.Join(dir, name), ".", outputs))
	}
	want := orttest.Golden(t, straightThrough+"/trained.safetensors")

	usual := copyStraightThrough(t)
	_, text := loopTower(unrolled, graph.New())
	write(usual, "text.onnx", graph.Output{Name: "text", Node: text})
	expected := trained(t, openBundle(t, usual), want)

	boxed := copyStraightThrough(t)
	_, text = loopTower(looped, graph.New())
	write(boxed, "text.onnx", graph.Output{Name: "text", Node: text})
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(4, 8))
	features, err := openBundle(t, boxed).Prompts(g, []string{"cat"}, []clip.Prompt{{Ctx: ctx}})
	if err == nil {
		_, err = grad.Of(features[0].Sum(), ctx)
	}
	goldentest.WantErrorOf(t, "a Loop without a gradient file", err, "Loop")

	g = graph.New()
	_, text = loopTower(looped, g)
	x, rules := loopTower(unrolled, g)
	cotangent := g.Input("cotangent/text", graph.Float, graph.Shape{graph.Sym("C"), graph.StaticDim(6)})
	dx, err := grad.VJP([]graph.Node{rules}, []graph.Node{cotangent}, x)
	goldentest.NoError(t, err)
	write(boxed, bundle.TextGradientFile, graph.Output{Name: "text", Node: text},
		graph.Output{Name: "grad/embeddings", Node: dx[0]})
	got := trained(t, openBundle(t, boxed), want)
	got.Axpy(-1, expected)
	if d := got.MaxAbs(); d > 1e-5 {
		t.Errorf("the prompt differs by %g from the usual one", d)
	}
}

// A gradient file that does not belong to its tower is refused in one line when the bundle is opened.
func TestWrongGradientFiles(t *testing.T) {
	mayRun(t)
	on := func(kind, input string) func(*onnx.GraphProto) { // the gradient goes through another operator
		return func(g *onnx.GraphProto) {
			i := slices.IndexFunc(g.Node, func(n *onnx.NodeProto) bool { return n.Output[0] == "grad/embeddings" })
			g.Node[i].Output[0] = "before"
			g.Node = append(g.Node, &onnx.NodeProto{OpType: kind, Input: strings.Fields("before " + input),
				Output: []string{"grad/embeddings"}})
			g.Output[1].Type = nil
		}
	}
	rename := func(from, to string) func(*onnx.GraphProto) {
		return func(g *onnx.GraphProto) {
			for _, v := range append(slices.Clone(g.Input), g.Output...) {
				v.Name = strings.Replace(v.Name, from, to, 1)
			}
			for _, n := range g.Node {
				for _, list := range [][]string{n.Input, n.Output} {
					for i, name := range list {
						list[i] = strings.Replace(name, from, to, 1)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		what   string
		change func(*onnx.GraphProto)
		want   string
	}{
		{"another gradient", rename("grad/embeddings", "grad/tokens"), `no floating-point output "grad/embeddings"`},
		{"another output", rename("text", "features"), `its input "cotangent/features" is none of`},
		{"another input", rename("eot", "end"), `its input "end" is none of`},
		{"no cotangent", func(g *onnx.GraphProto) {
			g.Input = g.Input[:2]
			g.Initializer = append(g.Initializer, &onnx.TensorProto{Name: "cotangent/text",
				DataType: int32(graph.Float), Dims: []int64{3, 6}, FloatData: make([]float32, 18)})
		}, `must have an input "cotangent/text"`},
		{"a transposed gradient", on("Transpose", ""), "has shape [8,32,3], must be [3,32,8]"},
		{"no numbers", on("Div", "zero"), "its gradient has elements that are not numbers"},
		{"other weights", func(g *onnx.GraphProto) {
			i := slices.IndexFunc(g.Initializer, func(t *onnx.TensorProto) bool {
				return slices.Equal(t.Dims, []int64{16, 6})
			})
			g.Initializer[i].RawData = make([]byte, 16*6*4)
		}, "features differ by"},
	} {
		dir := filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), straightThrough)
		changed(t, dir, bundle.TextGradientFile, func(m *onnx.ModelProto) {
			m.Graph.Initializer = append(m.Graph.Initializer, &onnx.TensorProto{Name: "zero",
				DataType: int32(graph.Float), FloatData: []float32{0}})
			c.change(m.Graph)
		})
		_, err := bundle.Find(dir)
		goldentest.WantErrorOf(t, c.what, err, bundle.TextGradientFile, c.want)
	}
	dir := filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), straightThrough)
	goldentest.NoError(t, os.Remove(filepath.Join(dir, "text.onnx")))
	_, err := bundle.Find(dir)
	goldentest.WantErrorOf(t, "no file of the tower", err, "text")
}

// Finite differences find a gradient whose sign is wrong; opening the bundle cannot.
func TestFiniteDifferencesOfAGradientFile(t *testing.T) {
	mayRun(t)
	boxed := filepath.Join(t.TempDir(), "boxed")
	goldentest.NoError(t, exported.WriteRecorded(openBundle(t, filepath.Join(layouts, "openai")), boxed, true))
	for _, turned := range []bool{false, true} {
		if turned {
			changed(t, boxed, bundle.TextGradientFile, func(m *onnx.ModelProto) {
				last := m.Graph.Node[len(m.Graph.Node)-1]
				last.Output[0] = "before"
				m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Neg", Input: []string{"before"},
					Output: []string{m.Graph.Output[1].Name}})
			})
			if err := os.Remove(filepath.Join(boxed, bundle.ManifestFile)); err != nil { // it has another SHA-256
				t.Fatal(err)
			}
		}
		b, g := openBundle(t, boxed), graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(4, 8))
		text := bundletest.Prompts(t, b, g, []string{"cat", "sea lion"}, clip.Prompt{Ctx: ctx})
		outputs := []graph.Output{{Name: "text", Node: text[0].L2Normalize()}}
		results, err := gradtest.Check(context.Background(), outputs, []string{"ctx"},
			tensor.Map{"ctx": bundle.Noise(4, 8)}, gradtest.Options{Session: ort.Options{WeightsDir: b.WeightsDir()}})
		goldentest.NoError(t, err)
		// Two opposite derivatives differ by twice either of them.
		if e := results[0].RelErr; turned && math.Abs(e-2) > 0.1 || !turned && e > 1e-2 {
			t.Errorf("turned %t: error %g", turned, e)
		}
	}
}
