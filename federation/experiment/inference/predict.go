package inference

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/runtime/tensor"
)

// Prediction is the result for one image, of which Image is the name.
type Prediction struct {
	Image         string
	Probabilities []float32 // by class
}

// Ranked returns the numbers of the classes, the most probable first.
func (p Prediction) Ranked() []int {
	return tensor.Order(len(p.Probabilities),
		func(a, b int) int { return cmp.Compare(p.Probabilities[b], p.Probabilities[a]) })
}

// Classifier is one of the classifiers of a finished run.
type Classifier struct {
	Choice
	Data DataSet // that the run was made of, for About

	classes  []string
	dir      string
	config   experiment.Config
	clients  int // how many there were
	prompts  tensor.Map
	bundle   *bundle.Bundle
	client   *spec.Client
	worker   *client.Worker
	has      record.Evaluable
	headline method.View // of the run
}

// DataSet names data: empty where it is not known.
type DataSet struct {
	Name   string
	Digest string // experiment.Data.Digest
}

// Open reads one classifier of the run in dir; the caller closes it.
func Open(c experiment.Config, dir string, choice Choice) (*Classifier, error) {
	r, err := readRun(dir)
	if err != nil {
		return nil, err
	}
	return r.open(c, choice)
}

func (r *finishedRun) open(config experiment.Config, choice Choice) (*Classifier, error) {
	stack, err := methods.Resolve(config.Method, config.With, config.Options)
	if err != nil {
		return nil, err
	}

	base := stack.Method
	config.Options = stack.Options
	id, err := r.clientOf(choice)
	if err != nil {
		return nil, err
	}

	classifier := &Classifier{classes: r.classes, Choice: choice, dir: r.dir, config: config, clients: len(r.backbones)}
	if classifier.bundle, err = findNamed(r.backbones[id], config); err != nil {
		return nil, err
	}

	if was, is := r.digests[id], classifier.bundle.Digest(); was != "" && was != is {
		return nil, fmt.Errorf("backbone %s has other weights here (%.12s) than in the run (%.12s); give the folder "+
			"that holds the run's backbone with --set runtime.models=FOLDER", classifier.bundle.Name, is, was)
	}

	if classifier.prompts, _, err = state.ReadPrompts(r.dir, id); err != nil {
		return nil, err
	}

	classifier.client = &spec.Client{ID: id, Backbone: experiment.Backbone{Bundle: classifier.bundle},
		Train: r.owned[id]}
	if kept := state.ClientMemory(classifier.prompts, id); kept != nil {
		classifier.client.Train = kept
	}

	task := spec.TaskOf(classifier.client.Backbone, id, classifier.clients, len(classifier.classes))
	classifier.has = record.EvaluableOf(base, task)
	classifier.headline = classifier.has.Headline(config.Eval.View, base)
	if err := r.check(classifier, base, task); err != nil {
		return nil, err
	}

	exp := &spec.Experiment{Method: evaluated{base, choice.view()}, Classes: classifier.classes,
		Template: config.Data.Template}
	exp.Plan.Seed = config.Seed
	classifier.worker = client.NewWorker(exp, config.Settings().Client)
	return classifier, nil
}

// Classes returns the names of the classes, in the order of probabilities.
func (f *Classifier) Classes() []string { return f.classes }

// Close frees the compiled graphs of the backbone and the method.
func (f *Classifier) Close() error { return f.worker.Close() }

// Predict classifies images. Features are computed in full precision, since those of the cache are rounded and exported
// files do not use it.
func (f *Classifier) Predict(ctx context.Context, images []data.Example) (out []Prediction, err error) {
	c := f.config
	if _, err := c.Runtime.ChooseProvider(); err != nil {
		return nil, err
	}

	x, err := c.Extractor(nil)
	if err != nil {
		return nil, err
	}

	rows := &spec.Features{Class: make([]int64, len(images))}
	reads := spec.Reads(f.worker.Experiment.Method, f.worker.Task(f.client, f.clients))
	for _, what := range append(reads, method.ImageInput) {
		t, err := x.Compute(ctx, features.Request{Bundle: f.bundle, List: images, What: what})
		if err != nil {
			return nil, err
		}
		rows.Add(what, []spec.RowReader{spec.InMemory{Tensor: t}})
	}

	scores, err := Predict(ctx, f.worker, f.client, f.clients, f.prompts, rows)
	if err != nil {
		return nil, err
	}

	for i, e := range images {
		out = append(out, Prediction{e.Name(), softmax(scores.Row(i))})
	}

	return out, nil
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
