// Package trained uses what a client of a finished run learned: it classifies images, and exports classifiers as ONNX
// models. It needs the run folder and the client's backbone, not the data.
package trained

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"promptfed/federation/data"
	"promptfed/federation/engine/inference"
	"promptfed/federation/engine/local"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment"
	"promptfed/federation/features"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/runtime/tensor"
)

// Prediction is what a client's classifier says of one image.
type Prediction struct {
	Image         string
	Probabilities []float32 // by class
}

// finishedRun is one client of a finished run. It needs the run folder and the client's backbone, not the data.
type finishedRun struct {
	config  experiment.Config
	classes []string
	clients int // how many there were
	prompts tensor.Map
	bundle  *bundle.Bundle
	client  *spec.Client
	worker  *local.Worker
}

// openFinished reads what client k of the run in dir learned; the caller closes the worker.
func openFinished(c experiment.Config, dir string, k int) (*finishedRun, error) {
	path := filepath.Join(dir, record.PromptsFile)
	prompts, meta, err := state.ReadPrompts(dir, k)
	if err != nil {
		return nil, fmt.Errorf("%w; %s must be the folder of a finished run", err, dir)
	}
	f := &finishedRun{config: c, prompts: prompts}
	var backbones []string
	var owned []spec.LabelsOnly
	for key, into := range map[string]any{state.MetaClasses: &f.classes, state.MetaBackbones: &backbones,
		state.MetaOwned: &owned} {
		if err := json.Unmarshal([]byte(meta[key]), into); err != nil {
			return nil, fmt.Errorf("%s: it does not list its %s; run the experiment again", path, key)
		}
	}
	if k < 0 || k >= len(backbones) {
		return nil, fmt.Errorf("client %d does not exist: the run has clients 0 to %d", k, len(backbones)-1)
	}
	m, err := methods.Build(c.Method, c.With, c.Options)
	if err != nil {
		return nil, err
	}
	if f.bundle, err = findNamed(backbones[k], c); err != nil {
		return nil, err
	}
	f.clients = len(backbones)
	if len(owned) != f.clients {
		return nil, fmt.Errorf("%s: it lists the classes of %d clients, but there were %d; run the experiment again",
			path, len(owned), f.clients)
	}
	f.client = &spec.Client{ID: k, Backbone: experiment.Backbone{Bundle: f.bundle}, Train: owned[k]}
	if kept := state.Memory(prompts, k); kept != nil {
		f.client.Train = kept
	}
	e := &spec.Experiment{Method: m, Classes: f.classes, Template: c.Data.Template}
	e.Plan.Seed = c.Seed
	f.worker = local.NewWorker(e, (&experiment.Built{Config: c}).Settings().Worker())
	return f, nil
}

// Predict classifies images with what client k of the run in dir learned. Features are computed anew in full precision:
// those of the cache are rounded, and Export's files know nothing of it.
func Predict(ctx context.Context, c experiment.Config, dir string, k int, images []data.Example) (classes []string,
	out []Prediction, err error) {
	f, err := openFinished(c, dir, k)
	if err != nil {
		return nil, nil, err
	}
	defer f.worker.Close()
	x, err := (&experiment.Built{Config: c}).Extractor(nil)
	if err != nil {
		return nil, nil, err
	}
	rows := &spec.Features{Class: make([]int64, len(images))}
	for _, what := range append(f.worker.Reads(f.client, f.clients), method.ImageInput) {
		t, err := x.Exact(ctx, features.Request{Bundle: f.bundle, List: images, What: what})
		if err != nil {
			return nil, nil, err
		}
		rows.Add(what, []spec.Rows{spec.InMemory{Tensor: t}})
	}
	scores, err := inference.Predict(f.worker, ctx, f.client, f.clients, f.prompts, rows)
	if err != nil {
		return nil, nil, err
	}
	for i, e := range images {
		out = append(out, Prediction{e.Name(), softmax(scores.Row(i))})
	}
	return f.classes, out, nil
}

// findNamed finds the backbone of a client: one of the configuration's, by the name that the run noted.
func findNamed(name string, c experiment.Config) (*bundle.Bundle, error) {
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
