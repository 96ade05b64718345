package pretrain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/sets"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Accuracy is the zero-shot accuracy on one domain of a source's test images, which are not trained on.
type Accuracy struct {
	Set     string  `json:"set"`
	Domain  string  `json:"domain"`
	Images  int     `json:"images"`
	Classes int     `json:"classes"`
	Correct float64 `json:"accuracy"` // as a share
}

// zeroShot is the prompt template of the evaluation.
const zeroShot = "a photo of {a}."

// evaluate measures the zero-shot accuracy of the written backbone on the test split of each set that the sources name.
func (c Config) evaluate(ctx context.Context) (out []Accuracy, err error) {
	dir, err := os.MkdirTemp("", "promptfed-pretrain-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	model, err := converted.Convert(c.Out, filepath.Join(dir, "bundle"), converted.Options{})
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	for i, source := range c.Sources {
		key := source.Data.Set + source.Data.Root
		if source.synthetic() { // all sources of synthetic images belong to one set
			key = "synthetic"
			source.Data = sets.Defaults()
			source.Data.Set, source.Data.Generator.Train = key, 1
		}

		if seen[key] {
			continue
		}

		seen[key] = true
		set, err := sets.Open(source.Data)
		if err != nil {
			return nil, fmt.Errorf("sources[%d]: %w", i, err)
		}

		acc, err := accuracies(ctx, model, set, c.Threads)
		if err != nil {
			return nil, err
		}

		out = append(out, acc...)
	}

	return out, nil
}

// accuracies measures the accuracy on the test split of a set, domain by domain.
func accuracies(ctx context.Context, b *bundle.Bundle, set *data.Set, workers int) (out []Accuracy, err error) {
	texts := convert.Slice(set.Classes, func(c string) string { return word(zeroShot, c) })
	prompts, err := TextFeatures(ctx, b, texts, ort.Options{})
	if err != nil {
		return nil, err
	}

	images, err := features.Extractor{Workers: workers}.Compute(ctx, features.Request{Bundle: b, List: set.Test,
		What: method.ImageInput})
	if err != nil {
		return nil, err
	}

	domains := set.Domains
	if len(domains) == 0 {
		domains = []string{""}
	}

	right, total := make([]int, len(domains)), make([]int, len(domains))
	for i, x := range set.Test {
		total[x.Domain]++
		if nearest(images.Row(i), prompts) == x.Label {
			right[x.Domain]++
		}
	}

	for i, d := range domains {
		if total[i] > 0 {
			out = append(out, Accuracy{set.Name, d, total[i], len(set.Classes), float64(right[i]) / float64(total[i])})
		}
	}

	return out, nil
}

// textTower is what TextFeatures needs of a backbone.
type textTower interface {
	Sentences(g *graph.Graph, texts []string) (graph.Node, error)
	WeightsDir() string
}

// TextFeatures returns the unit features [N,D] of texts.
func TextFeatures(ctx context.Context, backbone textTower, texts []string, o ort.Options) (*tensor.Tensor, error) {
	g := graph.New()
	node, err := backbone.Sentences(g, texts)
	if err != nil {
		return nil, err
	}

	one := g.Input("one", graph.Float, graph.Static(1)) // ONNX Runtime runs no graph without an input
	model, err := graph.Model(graph.Output{Name: "features", Node: node.L2Normalize().Mul(one)})
	if err != nil {
		return nil, err
	}

	o.WeightsDir = backbone.WeightsDir()
	got, err := ort.RunOnce(ctx, model, o, tensor.Map{"one": tensor.Of([]float32{1}, 1)})
	return got["features"], err
}

// nearest returns the index of the row with the largest inner product with x, the first among equals.
func nearest(x, rows *tensor.Tensor) int {
	best, most := 0, float32(-2)
	for i := range rows.Shape[0] {
		dot := float32(0)
		for k, v := range rows.Row(i).Data {
			dot += v * x.Data[k]
		}
		if dot > most {
			best, most = i, dot
		}
	}

	return best
}
