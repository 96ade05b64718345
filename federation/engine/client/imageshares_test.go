package client

import (
	"fmt"
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// imageTower is a backbone with an image tower of CLIP whose weights are in no file: its graphs can be counted, but not
// run. Its text tower is a sum.
type imageTower struct {
	name   string
	vision clip.Vision
}

func (b imageTower) Name() string                                   { return b.name }
func (b imageTower) WeightsDir() string                             { return "" }
func (b imageTower) StepBytes([]string, method.Prompt) (int, error) { return 1, nil }
func (b imageTower) Has(name string) bool                           { return b.vision.Shapes()[name] != nil }

func (b imageTower) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	return g.Weight(name, graph.Float, graph.External{File: "none", Length: 4}, shape...)
}

func (b imageTower) Task() method.ClientSpec {
	v := b.vision
	return method.ClientSpec{Width: 6, Dim: v.EmbedDim, Scale: 1, TextLayers: 12, TextUnits: 6, ImageSize: v.Image,
		Patches: v.Patches(), VisionWidth: v.Width, VisionLayers: v.Layers, VisionUnits: v.Units()}
}

func (b imageTower) Words(text string) (*tensor.Tensor, error) {
	return tensor.New(len(strings.Fields(text)), 6), nil
}

func (b imageTower) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	return g.Const(tensor.New(len(texts), b.vision.EmbedDim)), nil
}

func (b imageTower) Text(g *graph.Graph, classes []string, prompts []method.Prompt) (out []graph.Node, err error) {
	for _, p := range prompts {
		n, _ := b.Sentences(g, classes)
		for _, in := range graph.NodesOf(p) {
			n = n.Add(in.Sum())
		}
		out = append(out, n)
	}
	return out, g.Err()
}

func (b imageTower) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	n, _ := b.vision.PromptedFeatures(g, b, pixels, p)
	return n, g.Err()
}

// What computing values once saves with published towers: percent of the multiplications and additions of an image in a
// step and in a test, and kB to keep of an image. Prompts and changes of the first block leave patch embeddings and
// projections, which do not pay: in brackets what they would save.
func TestSharesOfImageParts(t *testing.T) {
	towers := map[string]clip.VisionArch{"rn50": clip.RN50, "vit-b32": clip.VisionB32, "vit-b16": clip.VisionB16,
		"vit-l14": clip.VisionL14}
	for _, c := range []struct{ method, tower, want string }{
		{"fedvpt", "rn50", "91 95, 417 kB"},
		{"pfeddc", "rn50", "80 91, 417 kB"},
		{"fedmgp", "rn50", "71 83, 417 kB"},
		{"pfedmma", "vit-b32", "30 46, 306 kB"},
		{"pfedmma", "vit-b16", "29 45, 1210 kB"},
		{"pfedmma", "vit-l14", "58 73, 2104 kB"},
		{"fedmvp", "vit-b32", "29 0, 2 kB"},
		{"fedmvp", "vit-b16", "30 0, 2 kB"},
		{"fedvpt", "vit-b32", "(1.1 2.2, 153 kB)"},
		{"fedvpt", "vit-b16", "(0.3 0.7, 605 kB)"},
		{"fedmgp", "vit-b32", "(0.3 0.6, 153 kB)"},
		{"maple", "vit-b32", "(1.4 2.7, 153 kB)"},
		{"promptsrc", "vit-b16", "(0.4 0.7, 605 kB)"},
		{"fedpr", "vit-b16", "(0.3 0.7, 605 kB)"},
		{"fedlora", "vit-b32", "(2.5 5.0, 766 kB)"},
		{"fedlora", "vit-b16", "(1.5 2.9, 3025 kB)"},
	} {
		options := map[string]any{}
		if c.method == "fedlora" {
			options["towers"] = "image"
		}
		m, err := methods.Build(c.method, nil, options)
		goldentest.NoError(t, err)
		b := imageTower{c.tower, clip.Vision{VisionArch: towers[c.tower]}}
		e := &spec.Experiment{Method: m, Classes: []string{"ant", "bee"}, Template: "a {}."}
		build := func(kind string, least float64) (share float64, kB int) {
			comp := newCompiler(e, Settings{}, caches{})
			comp.hands[fmt.Sprintf("%q %#v", c.tower, method.HandTexts{Templates: []string{e.Template}})] =
				tensor.New(2, b.vision.EmbedDim)
			s := comp.scope(spec.TaskOf(b, 0, 1, 2))
			var out []graph.Output
			if kind == "test" {
				out, err = comp.allLowered(t.Context(), b, valueOf(m.Logits(s)), nil, nil)
			} else if losses, failed := comp.losses(s); failed != nil {
				err = failed
			} else {
				out, err = comp.withGradients(t.Context(), b, s, losses, 1, nil)
			}
			goldentest.NoError(t, err)
			rest, parts := cutImages(out, least)
			for _, p := range parts {
				kB += 4 * tensor.Size(ofOneImage(p.Node)) / 1000
			}
			all := productsOf(nodesOf(out)...)
			return 100 * (all - productsOf(nodesOf(rest)...)) / all, kB
		}
		step, kB := build("step", leastProducts)
		test, _ := build("test", leastProducts)
		got := fmt.Sprintf("%.0f %.0f, %d kB", step, test, kB)
		if step+test == 0 {
			step, _ = build("step", 1)
			test, kB = build("test", 1)
			got = fmt.Sprintf("(%.1f %.1f, %d kB)", step, test, kB)
		}
		if t.Log(c.method, c.tower, got); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.method, c.tower, got, c.want)
		}
	}
}
