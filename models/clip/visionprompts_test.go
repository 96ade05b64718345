package clip_test

import (
	"fmt"
	"slices"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// promptCase is a case that tools/golden/visionprompts.py wrote for one tower with prompts: results of PyTorch, with
// gradients by autograd.
type promptCase struct {
	Name           string
	Inputs         map[string][]int
	Normed         bool
	Joint, Patches []float32
	Grads          map[string][]float32
}

var (
	promptedViT = clip.VisionArch{Width: 32, Layers: 3, Heads: 2, Patch: 16, Image: 32, EmbedDim: 24}
	promptedRN  = clip.VisionArch{Width: 256, Heads: 4, Stages: []int{1, 2, 1, 1}, Patch: 32, Image: 64, EmbedDim: 24}
)

func TestVisionPromptsEqualPyTorch(t *testing.T) {
	var golden struct{ ViT, ResNet []promptCase }
	goldentest.ReadJSON(t, "testdata/visionprompts.json", &golden)
	for _, c := range golden.ViT {
		t.Run("vit "+c.Name, func(t *testing.T) {
			device := func(g *graph.Graph) { g.UseKernels(graph.DeviceKernels) }
			plain := func(*graph.Graph) {}
			for _, use := range []func(*graph.Graph){plain, device, onCPU, (*graph.Graph).FuseAttention} {
				checkPrompts(t, promptedViT, formulaWeights(promptedViT.Shapes()), c, use)
			}
		})
	}
	resnet := clip.ConstantWeights{}
	for name, shape := range stored(promptedRN) {
		resnet[name] = resnetFormula(name, shape)
	}
	for _, c := range golden.ResNet {
		t.Run("resnet "+c.Name, func(t *testing.T) { checkPrompts(t, promptedRN, resnet, c, onCPU) })
	}
}

// onCPU lets a graph have all kernels, or on a GPU those that this has.
func onCPU(g *graph.Graph) {
	if orttest.OnCPU() {
		g.UseKernels(graph.CPUKernels)
	} else {
		g.UseKernels(graph.DeviceKernels)
	}
}

func checkPrompts(t *testing.T, arch clip.VisionArch, w clip.Weights, c promptCase, use func(*graph.Graph)) {
	const batch = 2
	g, in := graph.New(), tensor.Map{"pixels": formula("pixels", []int{batch, 3, arch.Image, arch.Image})}
	use(g)
	node := map[string]graph.Node{}
	for name, shape := range c.Inputs {
		node[name], in[name] = g.Input(name, graph.Float, graph.Static(shape...)), formula(name, shape)
	}
	p := clip.VisionPrompts{Pixels: node["pixels/prompt"], Tokens: node["tokens"], Normed: c.Normed}
	for i := range max(arch.Layers-1, 0) {
		if n := node[fmt.Sprintf("deep%d", i)]; n.OK() {
			p.Deep = append(p.Deep, slices.Repeat([]graph.Node{{}}, i-len(p.Deep))...)
			p.Deep = append(p.Deep, n)
		}
	}
	pixels := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3),
		graph.StaticDim(arch.Image), graph.StaticDim(arch.Image)})
	joint, patches := clip.Vision{VisionArch: arch}.PromptedFeatures(g, w, pixels, p)
	loss := joint.Mul(g.Const(formula("cotangent", []int{batch, arch.EmbedDim}))).Sum().
		Add(patches.Mul(g.Const(formula("cotangent/patches", []int{batch, arch.Patches(), arch.EmbedDim}))).Sum())
	outputs := []graph.Output{{Name: "joint", Node: joint}, {Name: "patches", Node: patches}}
	for name, x := range node {
		d := orttest.Gradients(t, loss, x)
		outputs = append(outputs, graph.Output{Name: "grad " + name, Node: d[0]})
	}
	out := evaluate(t, "", in, outputs...)
	near(t, "joint", out["joint"].Data, c.Joint, torchTolerance)
	near(t, "patches", out["patches"].Data, c.Patches, torchTolerance)
	for name := range node {
		step := 1
		if name == "pixels/prompt" {
			step = 61 // as in the file
		}
		near(t, "gradient of "+name, every(out["grad "+name].Data, step), c.Grads[name], torchTolerance)
	}
}

// Embeddings are those of the patches, computed by loops over the weights: the convolution of a patch, and its
// position, which follows that of the class token if there is one.
func TestPatchEmbeddings(t *testing.T) {
	for _, noClass := range []bool{false, true} {
		arch := promptedViT
		if arch.NoClass = noClass; noClass {
			arch.Pool = clip.MeanPool
		}
		w, g := formulaWeights(arch.Shapes()), graph.New()
		pixels := formula("pixels", []int{2, 3, arch.Image, arch.Image})
		in := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3),
			graph.StaticDim(arch.Image), graph.StaticDim(arch.Image)})
		x, _ := clip.Vision{VisionArch: arch}.PromptedFeatures(g, w, in, clip.VisionPrompts{Embeddings: true})
		out := evaluate(t, "", tensor.Map{"pixels": pixels}, graph.Output{Name: "x", Node: x})["x"]
		conv, at := formula("visual.conv1.weight", []int{arch.Width, 3, arch.Patch, arch.Patch}).Data, 1
		if noClass {
			at = 0
		}
		position := formula("visual.positional_embedding", []int{arch.Patches() + at, arch.Width}).Data
		var want []float32
		side := arch.Image / arch.Patch
		for b := range 2 {
			for m := range arch.Patches() {
				for v := range arch.Width {
					sum := float64(position[(m+at)*arch.Width+v])
					for i := range 3 * arch.Patch * arch.Patch {
						c, row, col := i/arch.Patch/arch.Patch, i/arch.Patch%arch.Patch, i%arch.Patch
						row, col = row+m/side*arch.Patch, col+m%side*arch.Patch
						sum += float64(conv[v*3*arch.Patch*arch.Patch+i]) *
							float64(pixels.Data[((b*3+c)*arch.Image+row)*arch.Image+col])
					}
					want = append(want, float32(sum))
				}
			}
		}
		near(t, fmt.Sprint("embeddings, no class token ", noClass), out.Data, want, torchTolerance)
	}
}

func TestWrongVisionPrompts(t *testing.T) {
	for _, c := range []struct {
		arch  clip.VisionArch
		build func(g *graph.Graph) clip.VisionPrompts
		want  string
	}{
		{promptedViT, func(g *graph.Graph) clip.VisionPrompts {
			return clip.VisionPrompts{Tokens: g.Input("p", graph.Float, graph.Static(4, 31))}
		}, "prompt tokens [4,31], must be [tokens,32]"},
		{promptedViT, func(g *graph.Graph) clip.VisionPrompts {
			return clip.VisionPrompts{Pixels: g.Input("p", graph.Float, graph.Static(3, 32, 31))}
		}, "pixels [3,32,31], must be [3,32,32]"},
		{promptedViT, func(g *graph.Graph) clip.VisionPrompts {
			return clip.VisionPrompts{Deep: make([]graph.Node, 3)}
		}, "3 deep prompts for 2 blocks"},
		{promptedRN, func(g *graph.Graph) clip.VisionPrompts { return clip.VisionPrompts{Deep: make([]graph.Node, 1)} },
			"deep prompts are for transformers"},
	} {
		g := graph.New()
		pixels := g.Input("pixels", graph.Float, graph.Static(1, 3, c.arch.Image, c.arch.Image))
		clip.Vision{VisionArch: c.arch}.PromptedFeatures(g, formulaWeights(c.arch.Shapes()), pixels, c.build(g))
		goldentest.WantError(t, g.Err(), c.want)
	}
}
