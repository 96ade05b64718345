package exported_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// running says whether opening a bundle may run its graphs, and plainOnly whether CLIP's text tower stays as exported.
var running, plainOnly bool

func init() {
	bundle.RegisterFormat(exported.Format(runs))
}

func runs(m *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, error) {
	if !running || plainOnly && m.Graph.Output[0].Name == "plain" {
		return nil, errors.New("not in this test")
	}
	return ort.RunOnce(context.Background(), m, ort.Options{WeightsDir: dir}, in)
}

// mayRun skips a test without ONNX Runtime, and allows it to open bundles that run their graphs.
func mayRun(t *testing.T) {
	t.Helper()
	orttest.RequireLibrary(t)
	running = true
	t.Cleanup(func() { running = false })
}

// TestExportedTowers opens folders that tools/golden/exported_towers.py made: towers as written by the exporters of
// PyTorch and of Hugging Face, with PyTorch's features and its gradients with respect to a prompt and to pixels. A few
// are in testdata; PROMPTFED_TEST_TOWERS names a folder of all.
func TestExportedTowers(t *testing.T) {
	mayRun(t)
	dirs := []string{"testdata"}
	if dir := os.Getenv("PROMPTFED_TEST_TOWERS"); dir != "" {
		dirs = append(dirs, filepath.SplitList(dir)...)
	}
	for _, dir := range dirs {
		list, _ := filepath.Glob(filepath.Join(dir, "*", "golden.safetensors"))
		if len(list) == 0 {
			t.Errorf("%s holds no towers", dir)
		}
		for _, path := range list {
			t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
				exportedTower(t, filepath.Dir(path), orttest.Golden(t, path))
			})
		}
	}
}

func exportedTower(t *testing.T, dir string, want tensor.Map) {
	if list, _ := filepath.Glob(filepath.Join(dir, "*.onnx")); len(list) == 0 {
		t.Skip("the exporter could not write it")
	}
	bothForms(t, dir, want)
}

// bothForms compares a bundle with PyTorch, with its text tower as exported and as recognised.
func bothForms(t *testing.T, spec string, want tensor.Map) {
	plainOnly = true
	sameAs(t, openBundle(t, spec), want)
	plainOnly = false
	sameAs(t, openBundle(t, spec), want)
}

// openBundle opens a folder, or another argument of bundle.Find.
func openBundle(t testing.TB, spec string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Find(spec)
	goldentest.NoError(t, err)
	return b
}

// sameAs compares features, and gradients with respect to a prompt and to pixels, with PyTorch's.
func sameAs(t *testing.T, b *bundle.Bundle, want tensor.Map) {
	t.Helper()
	if b.Text.Width != 8 || b.Text.EmbedDim != 6 || b.Text.Context != 32 || b.Vision.Image != 16 {
		t.Errorf("%+v %+v; want width 8, embed_dim 6, context 32, image 16", b.Text, b.Vision)
	}
	g := graph.New()
	ctx, c := g.Input("ctx", graph.Float, graph.Static(4, 8)), g.Input("c", graph.Float, graph.Static(3, 6))
	p := bundletest.Prompts(t, b, g, []string{"cat", "the thing", "sea lion"}, clip.Prompt{Ctx: ctx},
		clip.Prompt{Ctx: ctx.Slice(0, 0, 2), Class: clip.Front, ReadOffset: 1})
	text := p[0].L2Normalize()
	whole := bundletest.Sentences(t, b, g, "a photo of a cat.", "the")
	// The second prompt is in the graph but has no influence.
	loss := text.Mul(c).Sum().Add(p[1].L2Normalize().Mul(c).Sum().MulScalar(0))
	dx := orttest.Gradients(t, loss, ctx)
	model := orttest.Model(t, graph.Output{Name: "text", Node: text}, graph.Output{Name: "sentences",
		Node: whole.L2Normalize()}, graph.Output{Name: "grad", Node: dx[0]})
	got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": want["ctx"], "c": want["c"]})
	for _, name := range []string{"text", "sentences", "grad"} {
		orttest.CheckClose(t, name, got[name], want[name])
	}

	g = graph.New()
	pixels, d := g.Input("pixels", graph.Float, graph.Static(2, 3, 16, 16)), g.Input("d", graph.Float, graph.Static(2,
		6))
	image, _, err := b.Image(g, pixels, clip.VisionPrompts{})
	goldentest.NoError(t, err)
	dx = orttest.Gradients(t, image.L2Normalize().Mul(d).Sum(), pixels)
	model = orttest.Model(t, graph.Output{Name: "image", Node: image.L2Normalize()}, graph.Output{
		Name: "pixels_grad", Node: dx[0]})
	got = orttest.Run(t, model, b.WeightsDir(), tensor.Map{"pixels": want["pixels"], "d": want["d"]})
	orttest.CheckClose(t, "image", got["image"], want["image"])
	orttest.CheckClose(t, "gradient of pixels", got["pixels_grad"], want["pixels_grad"])
	model = bundletest.ImageModel(t, b)
	rows := []int{0, 1, 1} // the ones that were exported for three images
	if n := b.Batch(); n > 0 {
		rows = rows[:n]
	}
	got = orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: want["pixels"].Rows(rows)})
	orttest.CheckClose(t, "image model", unitRows(got[bundle.ImageOutput]), want["image"].Rows(rows))
}

func unitRows(x *tensor.Tensor) *tensor.Tensor {
	for i := range x.Shape[0] {
		row := x.Row(i)
		for j, n := 0, row.Norm(); j < len(row.Data); j++ {
			row.Data[j] /= float32(n)
		}
	}
	return x
}

// Prompts that need the blocks of a text tower, or one pass for each image, are refused in one line that says what to
// do.
func TestExportedTowersTakeNoDeepPrompts(t *testing.T) {
	list, _ := filepath.Glob(filepath.Join("testdata", "*", "*.onnx"))
	if len(list) == 0 {
		t.Fatal("no towers")
	}
	b, err := bundle.Open(filepath.Dir(list[0]))
	goldentest.NoError(t, err)
	for name, build := range map[string]func(g *graph.Graph, ctx graph.Node) clip.Prompt{
		"deep": func(g *graph.Graph, ctx graph.Node) clip.Prompt {
			return clip.Prompt{Ctx: ctx, Deep: []graph.Node{ctx}}
		},
		"low rank": func(g *graph.Graph, ctx graph.Node) clip.Prompt {
			return clip.Prompt{Ctx: ctx, Changes: clip.BlockChanges{LowRank: []clip.LowRank{{Map: clip.Query,
				A: g.Input("a", graph.Float, graph.Static(8, 1)), B: g.Input("b", graph.Float, graph.Static(1, 8))}}}}
		},
		"for images": func(g *graph.Graph, ctx graph.Node) clip.Prompt {
			return clip.Prompt{Ctx: ctx.Reshape(2, 2, 8)}
		},
		"own": func(g *graph.Graph, ctx graph.Node) clip.Prompt {
			_, own, err := b.SplitTemplate([]string{"cat"}, "{} texture.")
			goldentest.NoError(t, err)
			return clip.Prompt{Own: own}
		},
	} {
		g := graph.New()
		_, err := b.Prompts(g, []string{"cat"}, []clip.Prompt{build(g,
			g.Input("ctx", graph.Float, graph.Static(4, 8)))})
		goldentest.WantErrorOf(t, name, err, "promptfed convert", "exported text tower supports no deep prompts",
			"without a class or without positions, or templates")
	}
	g := graph.New()
	_, err = b.TextFeatures(g, [][]int{{1}, make([]int, b.Text.Context+1)})
	goldentest.WantErrorOf(t, "a long text", err, "text tower: sequence 1 has ", " tokens, must have 1 to ")
	pixels := g.Input("pixels", graph.Float, graph.Static(1, 3, b.Vision.Image, b.Vision.Image))
	_, _, err = b.Image(g, pixels, clip.VisionPrompts{Changes: clip.BlockChanges{LowRank: make([]clip.LowRank, 1)}})
	goldentest.WantErrorOf(t, "image tower", err, "convert the checkpoint")
}
