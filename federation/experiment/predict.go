package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"promptfed/federation/data"
	"promptfed/federation/engine"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Prediction is what a client's classifier says of one image.
type Prediction struct {
	Image         string
	Probabilities []float32 // by class
}

// Predict classifies images with what client k of the run in dir learned. It needs the run folder and the client's
// backbone, not the data.
func Predict(ctx context.Context, c Config, dir string, k int, images []data.Example) (classes []string, out []Prediction, err error) {
	path := filepath.Join(dir, engine.PromptsFile)
	prompts, meta, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; is %s the folder of a finished run?", err, dir)
	}
	var backbones []string
	for key, into := range map[string]*[]string{engine.MetaClasses: &classes, engine.MetaBackbones: &backbones} {
		if err := json.Unmarshal([]byte(meta[key]), into); err != nil {
			return nil, nil, fmt.Errorf("%s: it does not list its %s; run the experiment again", path, key)
		}
	}
	if k < 0 || k >= len(backbones) {
		return nil, nil, fmt.Errorf("client %d: the run has clients 0 to %d", k, len(backbones)-1)
	}
	m, err := methods.Build(c.Method, c.With, c.Options)
	if err != nil {
		return nil, nil, err
	}
	f, err := findNamed(backbones[k], c)
	if err != nil {
		return nil, nil, err
	}
	b := &Built{Config: c}
	x, err := b.Extractor(nil)
	if err != nil {
		return nil, nil, err
	}
	rows, err := x.Views(ctx, f, images, 1)
	if err != nil {
		return nil, nil, err
	}
	e := &engine.Experiment{Method: m, Classes: classes, Template: c.Data.Template}
	e.Plan.Seed = c.Seed
	w := engine.NewWorker(e, b.Settings())
	defer w.Close()
	client := &engine.Client{ID: k, Backbone: backbone{f}}
	scores, err := w.Predict(ctx, client, len(backbones), prompts, &engine.Features{Views: rows, Class: make([]int64, len(images))})
	if err != nil {
		return nil, nil, err
	}
	for i, e := range images {
		out = append(out, Prediction{e.Name(), softmax(scores.Row(i))})
	}
	return classes, out, nil
}

// findNamed finds the backbone of a client: one of the configuration's, by the name that the run noted.
func findNamed(name string, c Config) (*bundle.Bundle, error) {
	for _, n := range c.Backbones {
		if f, err := bundle.Find(n, c.Runtime.Models); err == nil && f.Name == name {
			return f, nil
		}
	}
	return bundle.Find(name, c.Runtime.Models)
}

func softmax(row *tensor.Tensor) []float32 {
	top := math.Inf(-1)
	for _, v := range row.Data {
		top = math.Max(top, float64(v))
	}
	sum := 0.0
	for _, v := range row.Data {
		sum += math.Exp(float64(v) - top)
	}
	out := make([]float32, len(row.Data))
	for i, v := range row.Data {
		out[i] = float32(math.Exp(float64(v)-top) / sum)
	}
	return out
}
