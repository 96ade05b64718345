package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Files of a bundle with what its model computes in the library that it comes from (docs/dropin.md).
const (
	witnessFile    = "witness.safetensors"
	witnessPicture = "witness.png"
)

// agreement is the largest difference to a witness, relative to its largest value. Pixels may differ by one level of
// 255: libraries round differently when they resize.
const agreement = 1e-4

// witness is what a model computes in its own library. Its tensors are pixels [1,3,S,S] of the picture, image [1,D],
// text [n,D], a prompt [T,w] of all classes, prompts [C,D], the loss [1], and its gradient [T,w].
type witness struct {
	texts, classes []string
	labels         []int
	tensors        tensor.Map
}

// readWitness reads a witness whose sizes are those of a bundle.
func readWitness(path string, model *bundle.Bundle) (witness witness, err error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return witness, err
	}
	defer file.Close()

	text := file.Metadata()
	for key, into := range map[string]any{"texts": &witness.texts, "classes": &witness.classes,
		"labels": &witness.labels} {
		if err := json.Unmarshal([]byte(text[key]), into); err != nil {
			return witness, fmt.Errorf("%s: %s: %w", path, key, err)
		}
	}

	if len(witness.labels) != 1 || witness.labels[0] < 0 || witness.labels[0] >= len(witness.classes) {
		return witness, fmt.Errorf("%s: labels are %v, want one of %d classes", path, witness.labels,
			len(witness.classes))
	}

	size, dim, prompt := model.Preprocess.Size, model.Text.EmbedDim, []int{1, model.Text.Width}
	if p, err := file.Info("prompt"); err == nil && len(p.Shape) == 2 && p.Shape[0] > 0 &&
		p.Shape[0] < model.Text.Context {
		prompt[0] = p.Shape[0]
	}

	witness.tensors = tensor.Map{}
	shapes := map[string][]int{"pixels": {1, 3, size, size}, "image": {1, dim}, "text": {len(witness.texts), dim},
		"prompt": prompt, "prompts": {len(witness.classes), dim}, "loss": {1}, "gradient": prompt}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		if info, err := file.Info(name); err != nil || info.DType != "F32" || !slices.Equal(info.Shape, shapes[name]) {
			return witness, fmt.Errorf("%s: tensor %s must be F32 and have the shape %v", path, name, shapes[name])
		}
		if witness.tensors[name], err = file.Tensor(name); err != nil {
			return witness, err
		}
	}

	return witness, nil
}

// witness compares what a bundle computes with what its model computes in its own library, if the bundle says so.
func (c *checks) witness(ctx context.Context, model *bundle.Bundle, options ort.Options) error {
	path := filepath.Join(model.Dir, witnessFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	witness, err := readWitness(path, model)
	if err != nil {
		return err
	}

	report := func(what string, worst, allowed float64, unit string) error {
		d := checkDone{what + " as in the model's own library", worst <= allowed, &worst, fmt.Sprintf("%.1e", worst)}
		if c.add(d); !d.OK {
			return fmt.Errorf("%s: difference of %s: %.2g of %s, more than %.2g", path, what, worst, unit, allowed)
		}
		return nil
	}

	pixels, err := readPicture(filepath.Join(model.Dir, witnessPicture), model.Preprocess)
	if err != nil {
		return err
	}

	out, err := witness.compute(ctx, model, options)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	levels, area := 0.0, len(pixels)/3
	for i, v := range witness.tensors["pixels"].Data {
		levels = max(levels, math.Abs(float64(pixels[i]-v))*float64(model.Preprocess.Std[i/area]))
	}

	if err := report("preprocessing", levels, 1.001/255, "the range of colours"); err != nil {
		return err
	}

	for _, x := range [][2]string{{"image features", "image"}, {"text features", "text"},
		{"features of prompts", "prompts"}, {"loss", "loss"}, {"gradient of a prompt", "gradient"}} {
		want := witness.tensors[x[1]]
		worst := tensor.Distance(out[x[1]], want) / cmp.Or(want.MaxAbs(), 1)
		if err := report(x[0], worst, agreement, "the largest value"); err != nil {
			return err
		}
	}

	return nil
}

func readPicture(path string, transform preprocess.Preprocess) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	img, err := preprocess.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return transform.Pixels(img), nil
}

// compute returns the features of the pixels, texts and prompts, the loss and its gradient.
func (w witness) compute(ctx context.Context, backbone *bundle.Bundle, options ort.Options) (tensor.Map, error) {
	model, err := backbone.ImageModel()
	if err != nil {
		return nil, err
	}

	batch := cmp.Or(backbone.Batch(), 1)
	pixels := tensor.Of(slices.Repeat(w.tensors["pixels"].Data, batch), batch, 3, backbone.Preprocess.Size,
		backbone.Preprocess.Size)
	out, err := ort.RunOnce(ctx, model, options, tensor.Map{bundle.PixelsInput: pixels})
	if err != nil {
		return nil, err
	}

	image := tensor.Of(out[bundle.ImageOutput].Data[:backbone.Text.EmbedDim], 1, backbone.Text.EmbedDim)
	g := graph.New()
	ctxInput := g.Input("prompt", graph.Float, graph.Static(w.tensors["prompt"].Shape...))
	texts, err := backbone.Sentences(g, w.texts)
	if err != nil {
		return nil, err
	}

	prompts, err := backbone.Prompts(g, w.classes, []clip.Prompt{{Ctx: ctxInput}})
	if err != nil {
		return nil, err
	}

	logits := g.Const(image).L2Normalize().MatMulT(prompts[0].L2Normalize()).MulScalar(backbone.LogitScale)
	loss := graph.CrossEntropy(logits, g.Ints(w.labels...))
	d, err := grad.Of(loss, ctxInput)
	if err != nil {
		return nil, err
	}

	if model, err = graph.Model(graph.Output{Name: "text", Node: texts},
		graph.Output{Name: "prompts", Node: prompts[0]}, graph.Output{Name: "loss", Node: loss},
		graph.Output{Name: "gradient", Node: d[0]}); err != nil {
		return nil, err
	}

	if out, err = ort.RunOnce(ctx, model, options, tensor.Map{"prompt": w.tensors["prompt"]}); err != nil {
		return nil, err
	}

	out["image"] = image
	return out, nil
}
