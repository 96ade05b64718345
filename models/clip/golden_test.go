package clip_test

import (
	"fmt"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// golden holds results that tools/golden/towers.py wrote: PyTorch's outputs in double precision for the weights of
// formula.
type golden struct {
	Text []struct {
		Name, Activation string
		MLP              int
		Classes, Every   int
		Width, Heads     int // of towers that are not ViT-B's; Joint is EmbedDim
		Joint            int
		T, After         []int
		Features, Grads  [][]float32
	}
	Vision []struct {
		Name, Activation           string
		MLP                        int
		Patch, Image, Batch, Every int
		Joint, Patches             []float32
	}
	Sentences struct {
		IDs      [][]int
		Features []float32
	}
}

func readGolden(t *testing.T, file string) (g golden) {
	t.Helper()
	goldentest.ReadJSON(t, "testdata/"+file, &g)
	return g
}

// every returns each n-th number, as in the golden files of the large towers.
func every(v []float32, n int) []float32 {
	var out []float32
	for i := 0; i < len(v); i += n {
		out = append(out, v[i])
	}
	return out
}

// Largest difference to PyTorch, relative to the largest value.
const torchTolerance = 1e-4

func TestTowersEqualPyTorch(t *testing.T) {
	g := readGolden(t, "golden.json")
	small := clip.VisionArch{Width: 64, Layers: 3, Heads: 2, EmbedDim: 48}
	checkText(t, g, tiny, func(s map[string][]int) clip.Weights { return formulaWeights(s) }, "")
	checkVision(t, g, small, func(s map[string][]int) clip.Weights { return formulaWeights(s) }, "")

	gr := graph.New()
	f := clip.Text{TextArch: tiny}.Sequences(gr, formulaWeights(tiny.Shapes()), g.Sentences.IDs, embedding(64))
	one := gr.Input("one", graph.Float, graph.Shape{}) // a session needs an input
	out := evaluate(t, "", tensor.Map{"one": tensor.Scalar(1)}, graph.Output{Name: "f", Node: f.Mul(one)})
	near(t, "sentences", out["f"].Data, g.Sentences.Features, torchTolerance)
}

// Published sizes take some seconds and a gigabyte of memory; -short skips them.
func TestFullSizeEqualsPyTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("towers of ViT-B/16 and ViT-B/32 size")
	}
	g := readGolden(t, "full.json")
	dir := t.TempDir()
	disk := func(s map[string][]int) clip.Weights { return writeFormula(t, dir, s) }
	checkText(t, g, clip.TextB, disk, dir)
	checkVision(t, g, clip.VisionB16, disk, dir)
}

func checkText(t *testing.T, golden golden, arch clip.TextArch, weights func(map[string][]int) clip.Weights,
	dir string) {
	w := map[int]clip.Weights{}
	for _, c := range golden.Text {
		t.Run("text "+c.Name, func(t *testing.T) {
			arch.Activation, arch.MLP = c.Activation, c.MLP
			if w[c.MLP] == nil {
				w[c.MLP] = weights(arch.Shapes())
			}
			text := clip.Text{TextArch: arch}
			g, in, s := graph.New(), tensor.Map{}, classes(t, c.Classes, arch.Width)
			var prompts []clip.Prompt
			var wrt, plain []graph.Node
			for i, n := range c.T {
				name := fmt.Sprintf("ctx%d", i)
				in[name] = formula(name, []int{n, arch.Width})
				p := clip.Prompt{Ctx: g.Input(name, graph.Float, graph.Static(n, arch.Width)), ReadOffset: c.After[i]}
				prompts, wrt = append(prompts, p), append(wrt, p.Ctx)
				emb, read := sequence(t, g, s, p, arch.Width, arch.Context)
				plain = append(plain, text.Plain(w[c.MLP], emb, read))
			}
			cheap := text.Prompts(g, w[c.MLP], s, prompts)
			cot := g.Const(formula("cotangent", []int{c.Classes, arch.EmbedDim}))
			for form, features := range map[string][]graph.Node{"plain": plain, "cheap": cheap} {
				loss := g.Scalar(0)
				for _, f := range features {
					loss = loss.Add(f.Mul(cot).Sum())
				}
				d := orttest.Gradients(t, loss, wrt...)
				var outputs []graph.Output
				for i := range d {
					outputs = append(outputs, graph.Output{Name: fmt.Sprintf("f%d", i), Node: features[i]},
						graph.Output{Name: fmt.Sprintf("d%d", i), Node: d[i]})
				}
				out := evaluate(t, dir, in, outputs...)
				for i := range d {
					near(t, form+" features", every(out[fmt.Sprintf("f%d", i)].Data, c.Every), c.Features[i],
						torchTolerance)
					near(t, form+" gradient", every(out[fmt.Sprintf("d%d", i)].Data, c.Every), c.Grads[i],
						torchTolerance)
				}
			}
		})
	}
}

func checkVision(t *testing.T, golden golden, arch clip.VisionArch, weights func(map[string][]int) clip.Weights,
	dir string) {
	for _, c := range golden.Vision {
		t.Run("vision "+c.Name, func(t *testing.T) {
			arch.Activation, arch.MLP, arch.Patch, arch.Image = c.Activation, c.MLP, c.Patch, c.Image
			g := graph.New()
			pixels := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3),
				graph.StaticDim(c.Image), graph.StaticDim(c.Image)})
			joint, patches := clip.Vision{VisionArch: arch}.Features(g, weights(arch.Shapes()), pixels)
			in := tensor.Map{"pixels": formula("pixels", []int{c.Batch, 3, c.Image, c.Image})}
			out := evaluate(t, dir, in, graph.Output{Name: "joint", Node: joint},
				graph.Output{Name: "patches", Node: patches})
			near(t, "joint", every(out["joint"].Data, c.Every), c.Joint, torchTolerance)
			near(t, "patches", every(out["patches"].Data, c.Every*c.Every), c.Patches, torchTolerance)
			if s := fmt.Sprint(out["patches"].Shape); s != fmt.Sprint([]int{c.Batch, arch.Patches(), arch.EmbedDim}) {
				t.Errorf("patches have shape %v", s)
			}
		})
	}
}
