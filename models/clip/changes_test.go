package clip_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// changeCase is a case that tools/golden/changes.py wrote: a tower with deep prompts, low-rank changes, adapters or a
// prompt for each image, and its features and gradients in PyTorch.
type changeCase struct {
	Name, Tower           string
	Classes, After, Every int
	Bare                  bool
	Inputs                map[string][]int
	Ranks                 []struct {
		Block int
		Map   clip.LinearMap
	}
	Adapters []struct {
		Block   int
		Place   clip.AdapterPlacement
		Scale   float64
		Rescale bool
		Sizes   []int
	}
	Features []float32
	Grads    map[string][]float32
}

var (
	changedText   = clip.TextArch{Width: 32, Layers: 3, Heads: 2, Context: 77, EmbedDim: 24}
	changedVision = clip.VisionArch{Width: 32, Layers: 3, Heads: 2, Patch: 16, Image: 32, EmbedDim: 24}
)

// changes returns the changes of a case, with nodes by name.
func (c changeCase) changes(node map[string]graph.Node) (out clip.BlockChanges) {
	for k, l := range c.Ranks {
		out.LowRank = append(out.LowRank, clip.LowRank{Block: l.Block, Map: l.Map,
			A: node[fmt.Sprintf("rank%d/a", k)], B: node[fmt.Sprintf("rank%d/b", k)]})
	}
	for k, a := range c.Adapters {
		one := clip.Adapter{Block: a.Block, Place: a.Place, Scale: a.Scale, Rescale: a.Rescale}
		for i := range len(a.Sizes) - 1 {
			one.Layers = append(one.Layers, clip.Layer{W: node[fmt.Sprintf("adapter%d/w%d", k, i)],
				B: node[fmt.Sprintf("adapter%d/b%d", k, i)]})
		}
		out.Adapters = append(out.Adapters, one)
	}
	return out
}

// The cheap form of the text tower, in which all classes share a prefix, is compared with PyTorch's whole sequences.
func TestChangesEqualPyTorch(t *testing.T) {
	var cases []changeCase
	data, err := os.ReadFile("testdata/changes.json")
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for i, c := range slices.Concat(cases, cases) {
		t.Run(c.Name, func(t *testing.T) {
			g, in := graph.New(), tensor.Map{}
			if i >= len(cases) {
				orttest.RequireCPU(t)
				g.UseKernels(graph.CPUKernels)
			}
			node := map[string]graph.Node{}
			for name, shape := range c.Inputs {
				s := graph.Static(shape...)
				if len(shape) == 3 {
					s[0] = graph.Sym("B")
				}
				node[name], in[name] = g.Input(name, graph.Float, s), formula(name, shape)
			}
			var f graph.Node
			if c.Tower == "text" {
				p := clip.Prompt{Ctx: node["ctx"], ReadOffset: c.After, NoPositions: c.Bare, Changes: c.changes(node)}
				for i := range changedText.Layers - 1 {
					if n := node[fmt.Sprintf("deep%d", i)]; n.OK() {
						p.Deep = append(append(p.Deep, slices.Repeat([]graph.Node{{}}, i-len(p.Deep))...), n)
					}
				}
				f = clip.Text{TextArch: changedText}.Prompts(g, formulaWeights(changedText.Shapes()),
					classes(t, c.Classes, changedText.Width), []clip.Prompt{p})[0]
			} else {
				pixels := g.Const(formula("pixels", []int{2, 3, changedVision.Image, changedVision.Image}))
				w := formulaWeights(changedVision.Shapes())
				f, _ = clip.Vision{VisionArch: changedVision}.PromptedFeatures(g, w, pixels,
					clip.VisionPrompts{Changes: c.changes(node)})
			}
			rows := 2 // images
			if s := c.Inputs["ctx"]; c.Tower == "text" {
				rows = c.Classes
				if len(s) == 3 {
					rows *= s[0]
				}
			}
			loss := f.Mul(g.Const(formula("cotangent", []int{rows, changedText.EmbedDim}))).Sum()
			outputs := []graph.Output{{Name: "features", Node: f}}
			for name, x := range node {
				d := orttest.Gradients(t, loss, x)
				outputs = append(outputs, graph.Output{Name: "grad " + name, Node: d[0]})
			}
			out := evaluate(t, "", in, outputs...)
			near(t, "features", every(out["features"].Data, c.Every), c.Features, torchTolerance)
			for name := range node {
				near(t, "gradient of "+name, every(out["grad "+name].Data, c.Every), c.Grads[name], torchTolerance)
			}
		})
	}
}

// The errors for unsupported shapes name the supported ones.
func TestWrongChanges(t *testing.T) {
	in := func(g *graph.Graph, name string, shape ...int) graph.Node {
		return g.Input(name, graph.Float, graph.Static(shape...))
	}
	for want, build := range map[string]func(g *graph.Graph) clip.Prompt{
		"3 deep prompts for 2 blocks": func(g *graph.Graph) clip.Prompt {
			return clip.Prompt{Ctx: in(g, "p", 2, 32), Deep: make([]graph.Node, 3)}
		},
		"deep prompt of block 1 is [3,32], must be [1 to 2,32]": func(g *graph.Graph) clip.Prompt {
			return clip.Prompt{Ctx: in(g, "p", 2, 32), Deep: []graph.Node{in(g, "d", 3, 32)}}
		},
		"its position is front": func(g *graph.Graph) clip.Prompt {
			return clip.Prompt{Ctx: in(g, "p", 2, 32), Deep: []graph.Node{in(g, "d", 2, 32)}, Class: clip.Front}
		},
		"for each image goes with the class name at the end": func(g *graph.Graph) clip.Prompt {
			return clip.Prompt{Ctx: in(g, "p", 2, 2, 32), ReadOffset: 1}
		},
		`a low-rank change of "values"`: func(g *graph.Graph) clip.Prompt {
			return changedPrompt(in(g, "p", 2, 32), clip.LowRank{Map: "values"})
		},
		"a low-rank change in block 3 of 3": func(g *graph.Graph) clip.Prompt {
			return changedPrompt(in(g, "p", 2, 32), clip.LowRank{Map: clip.Up, Block: 3})
		},
		"must be [32,rank] and [rank,128]": func(g *graph.Graph) clip.Prompt {
			return changedPrompt(in(g, "p", 2, 32), clip.LowRank{Map: clip.Up, A: in(g, "a", 32, 2),
				B: in(g, "b", 3, 128)})
		},
		"layer 0 of an adapter is": func(g *graph.Graph) clip.Prompt {
			return clip.Prompt{Ctx: in(g, "p", 2, 32), Changes: clip.BlockChanges{Adapters: []clip.Adapter{
				{Place: clip.Parallel, Layers: []clip.Layer{{W: in(g, "w", 4, 32)}}}}}}
		},
	} {
		g := graph.New()
		clip.Text{TextArch: changedText}.Prompts(g, formulaWeights(changedText.Shapes()), classes(t, 2, 32),
			[]clip.Prompt{build(g)})
		goldentest.WantError(t, g.Err(), want)
	}
}

func changedPrompt(ctx graph.Node, l clip.LowRank) clip.Prompt {
	return clip.Prompt{Ctx: ctx, Changes: clip.BlockChanges{LowRank: []clip.LowRank{l}}}
}
