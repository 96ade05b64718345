package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

const tokenPrompt = "prompt tokens"

func deepPrompt(block int) string { return fmt.Sprintf("prompt tokens of block %d", block) }

// imagePrompts returns the inputs of an image tower that gradients can be taken of, with values: pixels, and the prompt
// tokens of all blocks of a transformer or of the attention pooling of a ResNet. Exported towers have pixels only.
func imagePrompts(model *bundle.Bundle) (names []string, feeds tensor.Map) {
	size := model.Preprocess.Size
	names, feeds = []string{bundle.PixelsInput}, tensor.Map{bundle.PixelsInput: randomTensor(1, 3, size, size)}
	if !model.TakesPromptTokens() {
		return names, feeds
	}

	add := func(name string) {
		names = append(names, name)
		feeds[name] = randomTensor(2, model.Vision.Width)
	}

	add(tokenPrompt)
	for i := 1; i < model.Vision.Layers && !model.Vision.ResNet(); i++ {
		add(deepPrompt(i))
	}

	return names, feeds
}

// imageTower runs image.onnx, and compares the gradients of the tower with respect to pixels and prompt tokens with
// finite differences along random directions, if it has gradients.
func (c *checks) imageTower(ctx context.Context, backbone *bundle.Bundle, session ort.Options) error {
	model, err := backbone.ImageModel()
	if err != nil {
		return err
	}

	size := backbone.Preprocess.Size
	features, err := ort.RunOnce(ctx, model, session,
		tensor.Map{bundle.PixelsInput: randomTensor(cmp.Or(backbone.Batch(), 2), 3, size, size)})
	if err != nil {
		return fmt.Errorf("image tower: %w", err)
	}

	out := features[bundle.ImageOutput]
	if i := out.NonFinite(); i >= 0 {
		return fmt.Errorf("image tower: output %s: element %d is not a number", bundle.ImageOutput, i)
	}

	c.add(checkDone{What: fmt.Sprintf("image tower, features of norm %.3g",
		out.Norm()/math.Sqrt(float64(out.Shape[0]))), OK: true})
	if backbone.RoundsImage {
		c.add(checkDone{What: "no gradient of the image tower, which rounds activations", OK: true})
		return nil
	}

	prompts, feeds := imagePrompts(backbone)
	image, err := promptedImage(backbone, feeds)
	if errors.Is(err, bundle.ErrNoPromptTokens) {
		prompts = prompts[:1]
		image, err = promptedImage(backbone, tensor.Map{bundle.PixelsInput: feeds[bundle.PixelsInput]})
	}

	if err != nil {
		return err
	}

	outputs := []graph.Output{{Name: bundle.ImageOutput, Node: image.L2Normalize()}}
	options := gradtest.Options{Session: session, Elements: -1}
	if gradtest.NonSmooth(outputs...) {
		options.NonSmooth, options.Directions, options.Step = true, 7, 5e-4 // longer steps cross many bends
	}

	results, err := gradtest.Check(ctx, outputs, prompts, feeds, options)
	if err != nil {
		return fmt.Errorf("image tower: %w", err)
	}

	return c.gradients(results, "the image tower")
}

// promptedImage returns the features of an image in a graph whose inputs are those of feeds.
func promptedImage(model *bundle.Bundle, feeds tensor.Map) (graph.Node, error) {
	g := graph.New()
	input := func(name string) graph.Node {
		if t := feeds[name]; t != nil {
			return g.Input(name, graph.Float, graph.Static(t.Shape...))
		}
		return graph.Node{}
	}

	pixels := input(bundle.PixelsInput)
	p := clip.VisionPrompts{Tokens: input(tokenPrompt)}
	for i := 1; input(deepPrompt(i)).OK(); i++ {
		p.Deep = append(p.Deep, input(deepPrompt(i)))
	}

	if std := float64(model.Preprocess.Std[0]); std < 0.1 || std > 0.9 { // the tower takes values of 0 to 255
		pixels = pixels.MulScalar(0.25 / std).AddScalar(0.5 / std)
	}

	image, _, err := model.Image(g, pixels, p)
	return image, err
}

// lengths compares the features of a text alone with those beside a longer text. Tokens after the end token must have
// no effect.
func (c *checks) lengths(ctx context.Context, b *bundle.Bundle, options ort.Options) error {
	g := graph.New()
	short, err := b.Sentences(g, []string{"a dog"})
	if err != nil {
		return err
	}

	both, err := b.Sentences(g, []string{"a dog", "a dog on the red car"})
	if err != nil {
		return err
	}

	one := g.Input("one", graph.Float, graph.Static(1)) // sessions have at least one input
	model, err := graph.Model(graph.Output{Name: "short", Node: short.L2Normalize().Mul(one)}, graph.Output{
		Name: "both", Node: both.L2Normalize().Mul(one)})
	if err != nil {
		return err
	}

	out, err := ort.RunOnce(ctx, model, options, tensor.Map{"one": tensor.Of([]float32{1}, 1)})
	if err != nil {
		return fmt.Errorf("text tower: %w", err)
	}

	alone := out["short"]
	worst := tensor.Distance(alone, tensor.Of(out["both"].Data[:alone.Len()], alone.Shape...))
	d := checkDone{"text beside a longer one", worst <= 1e-3, &worst, fmt.Sprintf("%.1e", worst)}
	if !d.OK {
		err = fmt.Errorf("the features of a text change by %.2g when a longer one is in the batch: the tower reads "+
			"what follows the end token; write \"text\": {\"causal\": false} in %s", worst, bundle.ManifestFile)
	}

	c.add(d)
	return err
}
