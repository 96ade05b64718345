package methodtest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// HandExample is two rounds small enough to do with a pencil. There are two classes, prompts of width 1, and features
// of dimension 2: a prompt whose tokens sum up to p has the class features (1,p) and (1,-p) before normalisation, and
// the logit scale is 1. An image's one patch is the image, and so are its first two colours: a prompt of the image
// tower whose tokens sum up to p makes the features of an image (x,y) (x,y+p). A hand-written text is the prompt 1, a
// prompt without a class is that of class 0, words are 0, and a low-rank change A B of the text tower's one block
// adds A B to p, an adapter A(1) to the prompt of its tower; the embedding of a patch is y, and the last tokens
// are x, y and -1. Client 0 has one example, (0.6,0.8) of class 0; client 1 has two, both (0.8,0.6) of class 1. Each
// round is Epochs steps of plain gradient descent on all examples of a client.
type HandExample struct {
	Method  string
	With    []string
	Options map[string]any
	Epochs  int
	LR      float64
	// Momentum, WeightDecay and Shared are of the optimizer: plain, and fresh in every turn, unless they are given.
	Momentum, WeightDecay float64
	Shared                bool
	// Synthetic is how often the server goes over client 0's example before round 0.
	Synthetic int
	// Mirrored gives clients examples of both classes: the mirror (x,-y) of each of their images (x,y) too, of the
	// other class. Where scores are those of text prompts, its loss and gradient are those of (x,y).
	Mirrored bool
	First    map[string]float64 // first values; cK/NAME of a private parameter
	// Want are traced numbers, each a tensor with one element.
	Want map[string]float64
}

type pencil struct{}

func (*pencil) Name() string       { return "pencil" }
func (*pencil) WeightsDir() string { return "" }
func (*pencil) Task() method.ClientSpec {
	return method.ClientSpec{Width: 1, Dim: 2, Patches: 1, Scale: 1, ImageSize: 1, VisionWidth: 1, VisionLayers: 1,
		TextLayers: 1, TextUnits: 1, VisionUnits: 1, Tokens: 3}
}

func (*pencil) Text(g *graph.Graph, _ []string, prompts []method.Prompt) ([]graph.Node, error) {
	var out []graph.Node
	slope, start := g.Const(tensor.Of([]float32{0, 1, 0, -1}, 2, 2)), g.Const(tensor.Of([]float32{1, 0, 1, 0}, 2, 2))
	for _, prompt := range prompts {
		sum := g.Scalar(1) // of a hand-written text
		if prompt.Ctx.OK() {
			sum = prompt.Ctx.Sum(-1, -2)
			switch {
			case prompt.PerImage():
				sum = sum.Reshape(-1, 1, 1)
			case prompt.PerClass:
				sum = sum.Reshape(-1, 1)
			}
		}

		for _, l := range prompt.Changes.LowRank {
			sum = sum.Add(l.A.MatMul(l.B).Sum())
		}

		n := sum.Add(adapted(g, prompt.Changes)).Mul(slope).Add(start)
		if prompt.NoClass {
			n = n.Slice(0, 0, 1)
		}

		out = append(out, n)
	}

	return out, g.Err()
}

// adapted returns the output of adapters for 1.
func adapted(g *graph.Graph, c method.BlockChanges) graph.Node {
	sum := g.Scalar(0)
	for _, a := range c.Adapters {
		sum = sum.Add(a.Apply(g.Const(tensor.Of([]float32{1}, 1, 1))).Sum())
	}
	return sum
}

func (*pencil) StepBytes([]string, method.Prompt) (int, error) { return 1, nil }

func (*pencil) Words(text string) (*tensor.Tensor, error) {
	return tensor.New(len(strings.Fields(text)), 1), nil
}

func (*pencil) Sentences(g *graph.Graph, _ []string) (graph.Node, error) {
	return g.Const(tensor.Of([]float32{1, 1, 1, -1}, 2, 2)), nil
}

func (*pencil) Vision(g *graph.Graph, pixels graph.Node, prompts method.VisionPrompts) (graph.Node, error) {
	if prompts.Pixels.OK() {
		pixels = pixels.Add(prompts.Pixels)
	}

	if prompts.Embeddings {
		return pixels.Slice(1, 1, 2).Reshape(-1, 1, 1), g.Err()
	}

	out := pixels.Reshape(-1, 3).MatMul(g.Const(tensor.Of([]float32{1, 0, 0, 1, 0, 0}, 3, 2)))
	if prompts.Tokens.OK() {
		sum := prompts.Tokens.Sum(-1, -2)
		if prompts.Tokens.Rank() == 3 { // one for each image
			sum = sum.Reshape(-1, 1)
		}
		out = out.Add(sum.Mul(g.Const(tensor.Of([]float32{0, 1}, 2))))
	}

	return out.Add(adapted(g, prompts.Changes).Mul(g.Const(tensor.Of([]float32{0, 1}, 2)))), g.Err()
}

// Check runs the two rounds and compares to 1e-6.
func (h HandExample) Check(t *testing.T) {
	first := tensor.Map{}
	for name, v := range h.First {
		first[name] = tensor.Of([]float32{float32(v)}, 1, 1)
	}

	data := func(mirrored bool, class int64, image ...float32) *spec.Features {
		own := len(image) / 2
		if mirrored {
			for i := range own {
				image = append(image, image[2*i], -image[2*i+1])
			}
		}

		n := len(image) / 2
		features := &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: tensor.Of(image, n, 2)}},
			Class:   make([]int64, n),
			Patches: []spec.RowReader{spec.InMemory{Tensor: tensor.Of(image, n, 1, 2)}}}

		pixels, tokens := tensor.New(n, 3, 1, 1), tensor.New(n, 3, 1)
		for i := range features.Class {
			if features.Class[i] = class; i >= own {
				features.Class[i] = 1 - class
			}
			copy(pixels.Row(i).Data, image[2*i:2*i+2])
			copy(tokens.Row(i).Data, []float32{image[2*i], image[2*i+1], -1})
		}

		features.Tokens = []spec.RowReader{spec.InMemory{Tensor: tokens}}
		features.Pixels = []spec.RowReader{spec.InMemory{Tensor: pixels}}
		return features
	}

	backbone := &pencil{}
	experiment := &spec.Experiment{Name: "pencil", Method: Pinned{Build(t, h.Method, h.With, h.Options), first},
		Classes: []string{"plus", "minus"}, Template: "{}",
		Clients: []*spec.Client{
			{ID: 0, Backbone: backbone, Train: data(h.Mirrored, 0, .6, .8), Test: data(false, 0, .6, .8)},
			{ID: 1, Backbone: backbone, Train: data(h.Mirrored, 1, .8, .6, .8, .6), Test: data(false, 1, .8, .6)}},
		Training: spec.Training{Epochs: max(1, h.Epochs), Batch: 4, Shared: h.Shared,
			Optim: optim.Config{Name: "sgd", LR: h.LR, Momentum: h.Momentum, WeightDecay: h.WeightDecay}},
		Plan: spec.Plan{Rounds: 2}}

	if h.Synthetic > 0 {
		experiment.Synthetic = &spec.Synthetic{Backbone: backbone, Data: data(false, 0, .6, .8), Epochs: h.Synthetic}
	}

	_, rec := traced(t, experiment, engine.Settings{})
	for name, want := range h.Want {
		name, index, _ := strings.Cut(name, "#")
		i := 0
		fmt.Sscan(index, &i)
		got := rec.Tensors[name]
		if got == nil || i >= len(got.Data) {
			t.Errorf("nothing is called %s", name)
		} else if math.Abs(float64(got.Data[i])-want) > orttest.Tolerance(1e-6) {
			t.Errorf("%s is %.8f, by hand %.8f", name, got.Data[i], want)
		}
	}
}
