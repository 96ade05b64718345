package clip_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// resnetGolden holds results that tools/golden/resnet.py wrote: PyTorch's outputs in double precision for the weights
// of resnetFormula, with separate batch normalisations.
type resnetGolden struct {
	golden
	ResNet []resnetCase
}

type resnetCase struct {
	Name                              string
	Stages                            []int
	Width, Image, Joint, Batch, Every int
	Features, Patches, Pixels         []float32 // image and patch features, gradient of the pixels
}

func readResNet(t *testing.T, file string) (g resnetGolden) {
	t.Helper()
	goldentest.ReadJSON(t, "testdata/"+file, &g)
	if len(g.ResNet) < 2 {
		t.Fatalf("%s has %d cases", file, len(g.ResNet))
	}
	return g
}

// resnetFormula is formula with scales that keep the activations of a ResNet of any depth near 1: convolutions
// compensate for ReLU, the last normalisation of a bottleneck has a small gain, and attention is not too sharp.
func resnetFormula(name string, shape []int) *tensor.Tensor {
	offset, scale := 0.0, 0.1
	switch last := name[strings.LastIndex(name, ".")+1:]; {
	case last == "running_var":
		offset, scale = 1, 0.5
	case len(shape) == 4:
		scale = math.Sqrt(6 / float64(tensor.Size(shape[1:])))
	case last == "weight" && len(shape) == 2:
		scale = math.Sqrt(3 / float64(shape[1]))
		if strings.HasSuffix(name, "q_proj.weight") || strings.HasSuffix(name, "k_proj.weight") {
			scale *= 0.3
		}
	case last == "weight" && strings.Contains(name, ".layer") && strings.Contains(name, ".bn3."):
		offset = 0.3
	case last == "weight":
		offset = 1
	}
	return hashed(name, shape, offset, scale)
}

// squares returns pixels [batch,3,image,image] in squares of 16 with one colour each.
func squares(batch, image int) *tensor.Tensor {
	n := image / 16
	small := hashed("pixels", []int{batch, 3, n, n}, 0, 2)
	out := tensor.New(batch, 3, image, image)
	for i := range out.Data {
		x, y, plane := i%image, i/image%image, i/(image*image)
		out.Data[i] = small.Data[(plane*n+y/16)*n+x/16]
	}
	return out
}

// stored returns the tensors of a ResNet as in checkpoints.
func stored(a clip.VisionArch) map[string][]int {
	s := a.TrainedShapes()
	for _, c := range a.Convolutions() {
		s[c.Norm+".running_mean"], s[c.Norm+".running_var"] = []int{c.Out}, []int{c.Out}
	}
	return s
}

func TestResNetEqualsPyTorch(t *testing.T) {
	for _, c := range readResNet(t, "resnet.json").ResNet {
		t.Run(c.Name, func(t *testing.T) { checkResNet(t, c, torchTolerance) })
	}
}

// RN50, and in a soak RN101 and RN50x4, the image tower of ViT-L/14, and their text towers if they differ from ViT-B's.
func TestFullSizeResNetEqualsPyTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("towers of up to 1.2 GB")
	}
	g := readResNet(t, "resnet-full.json")
	for place, c := range g.ResNet {
		if busytest.Part(place, 3) {
			t.Run(c.Name, func(t *testing.T) { checkResNet(t, c, 5e-3) })
		}
	}
	disk := func(dir string) func(map[string][]int) clip.Weights {
		return func(s map[string][]int) clip.Weights { return writeFormula(t, dir, s) }
	}
	if len(g.Text) != 3 || len(g.Vision) != 1 {
		t.Fatalf("%d text towers and %d transformers", len(g.Text), len(g.Vision))
	}
	if !busytest.Soak() {
		return
	}
	for _, c := range g.Text {
		one := golden{Text: append(g.Text[:0:0], c)}
		dir := t.TempDir()
		checkText(t, one, clip.TextArch{Width: c.Width, Layers: 12, Heads: c.Heads, Context: 77, EmbedDim: c.Joint},
			disk(dir), dir)
	}
	dir := t.TempDir()
	checkVision(t, g.golden, clip.VisionArch{Width: 1024, Layers: 24, Heads: 16, EmbedDim: 768}, disk(dir), dir)
}

// checkResNet compares a tower and the gradient of its pixels. In towers of full size, rounding to single precision
// switches some units on or off, each of which changes the gradient abruptly; slack allows for this (PyTorch in single
// precision differs by 3e-3 of the largest value for RN50x4).
func checkResNet(t *testing.T, c resnetCase, slack float64) {
	arch := clip.VisionArch{Width: c.Width, Heads: c.Width / 64, Stages: c.Stages, Patch: 32, Image: c.Image,
		EmbedDim: c.Joint}
	dir := t.TempDir()
	g := graph.New()
	pixels := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3), graph.StaticDim(c.Image),
		graph.StaticDim(c.Image)})
	joint, patches := clip.Vision{VisionArch: arch}.Features(g, writeWeights(t, dir, stored(arch), resnetFormula),
		pixels)
	d := orttest.Gradients(t, joint.Mul(g.Const(formula("cotangent", []int{c.Batch, c.Joint}))).Sum(), pixels)
	out := evaluate(t, dir, tensor.Map{"pixels": squares(c.Batch, c.Image)}, graph.Output{Name: "joint", Node: joint},
		graph.Output{Name: "patches", Node: patches}, graph.Output{Name: "gradient", Node: d[0]})
	near(t, "joint", every(out["joint"].Data, c.Every), c.Features, torchTolerance)
	near(t, "patches", every(out["patches"].Data, c.Every*c.Every), c.Patches, torchTolerance)
	if s := fmt.Sprint(out["patches"].Shape); s != fmt.Sprint([]int{c.Batch, arch.Patches(), arch.EmbedDim}) {
		t.Errorf("patches have shape %v", s)
	}
	near(t, "gradient of the pixels", every(out["gradient"].Data, c.Every*c.Every*c.Every), c.Pixels, slack)
}
