package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/programs"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
)

// Federation is a task with the features of all images: the engine can run it. The caller closes it.
type Federation struct {
	Task       *Task
	Experiment *spec.Experiment
	Rates      features.Rates // of the features that were not in the cache

	mapped []io.Closer // files of the feature cache
}

// Federate computes the features of every client.
func Federate(ctx context.Context, t *Task, progress Progress) (*Federation, error) {
	experiment := *t.Experiment
	f := &Federation{Task: t, Experiment: &experiment}
	if err := f.compute(ctx, progress); err != nil {
		f.Close()
		return nil, t.Data.Set.AllUnreadable(ctx, t.Runtime.workers(), preprocess.Decode, err)
	}
	return f, nil
}

// compute adds what has features to the experiment: clients, the server's own images and evaluation sets.
func (f *Federation) compute(ctx context.Context, progress Progress) (err error) {
	task := f.Task
	extractor, err := task.here().Extractor(progress)
	if err != nil {
		return err
	}

	extractor.Sessions, extractor.Rates = &features.Sessions{}, &f.Rates
	defer func() { err = errors.Join(err, extractor.Sessions.Close()) }()
	validating, err := task.Data.validating()
	if err != nil {
		return err
	}

	if _, err := extractor.Storage(ctx, task.requests(validating)); err != nil {
		return err
	}

	f.Experiment.Clients = make([]*spec.Client, len(task.Data.Parts))
	for _, b := range task.Backbones.Distinct {
		if err := f.addClients(ctx, extractor, b, validating); err != nil {
			return err
		}
	}

	if len(task.synthetic) > 0 {
		b := task.Backbones.Distinct[0]
		rows, err := f.features(ctx, extractor, b, task.synthetic, 1)
		if err != nil {
			return err
		}
		f.Experiment.Synthetic = &spec.Synthetic{Backbone: Backbone{b}, Data: rows,
			Epochs: task.Protocol.Config.Synthetic.Epochs}
	}

	return f.addEvaluationSets(ctx, extractor)
}

// addClients adds the clients of a backbone.
func (f *Federation) addClients(ctx context.Context, extractor features.Extractor, model *bundle.Bundle,
	validating bool) error {
	content := f.Task.Data
	train, err := f.features(ctx, extractor, model, content.trainList(), f.Task.Protocol.Config.Data.Views)
	if err != nil {
		return err
	}

	test, err := f.features(ctx, extractor, model, content.testList(), 1)
	if err != nil {
		return err
	}

	var val *spec.Features
	if validating {
		if val, err = f.features(ctx, extractor, model, content.valList(), 1); err != nil {
			return err
		}
	}

	for i, part := range content.Parts {
		if f.Task.Backbones.Assigned[i] != model {
			continue
		}
		own, err := f.training(ctx, extractor, model, train, i)
		if err != nil {
			return err
		}
		site := &spec.Client{ID: i, Backbone: Backbone{model}, Domain: part.Domain, Train: own,
			Test: test.Pick(part.Test)}
		if validating {
			site.Val = val.Pick(part.Val)
		}
		f.Experiment.Clients[i] = site
	}

	return nil
}

// training returns the training data of a client: its part of the features of all training examples, with the labels
// and the images after label noise and an attack.
func (f *Federation) training(ctx context.Context, extractor features.Extractor, model *bundle.Bundle,
	all *spec.Features, client int) (*spec.Features, error) {
	d := f.Task.Data
	out := all.Pick(d.trainedOn(client))
	out.Class, _ = d.labels(client)
	out.Class = f.Experiment.Attack.Labels(client, out.Class, len(d.Set.Classes))
	list, at := f.Task.poisoned(client)
	if len(list) == 0 {
		return out, nil
	}

	poison, err := f.features(ctx, extractor, model, list, f.Task.Protocol.Config.Data.Views)
	if err != nil {
		return nil, err
	}

	return out.Replace(at, poison), nil
}

func (f *Federation) addEvaluationSets(ctx context.Context, x features.Extractor) error {
	for _, s := range f.Task.Data.evaluationSets {
		set := spec.EvaluationSet{Name: s.name, Template: s.template, Test: map[string]*spec.Features{}}
		if !slices.Equal(s.classes, f.Experiment.Classes) {
			set.Classes = s.classes
		}
		for _, b := range f.Task.Backbones.Distinct {
			rows, err := f.features(ctx, x, b, s.examples, 1)
			if err != nil {
				return fmt.Errorf("evaluation set %s: %w", s.name, err)
			}
			set.Test[b.Name] = rows
		}
		f.Experiment.EvaluationSets = append(f.Experiment.EvaluationSets, set)
	}

	return nil
}

// features computes the inputs that the method reads of a list of images.
func (f *Federation) features(ctx context.Context, x features.Extractor, b *bundle.Bundle, list []data.Example,
	views int) (*spec.Features, error) {
	out := &spec.Features{}
	for _, y := range data.Labels(list) {
		out.Class = append(out.Class, int64(y))
	}

	for _, r := range f.Task.requestsOf(b, list, views) {
		views, err := x.Rows(ctx, r)
		if err != nil {
			return nil, err
		}
		var rows []spec.RowReader
		for _, v := range views {
			rows = append(rows, v)
			f.mapped = append(f.mapped, v)
		}
		out.Add(r.What, rows)
	}

	return out, nil
}

// Close releases the files of the feature cache. The clients cannot be used any more.
func (f *Federation) Close() error {
	var errs []error
	for _, m := range f.mapped {
		errs = append(errs, m.Close())
	}
	f.mapped = nil
	return errors.Join(errs...)
}

// TestFeatures computes the inputs that the method reads of the test images, by one backbone.
func (f *Federation) TestFeatures(ctx context.Context, b *bundle.Bundle, progress Progress) (*spec.Features, error) {
	x, err := f.Task.here().Extractor(progress)
	if err != nil {
		return nil, err
	}
	return f.features(ctx, x, b, f.Task.Data.testList(), 1)
}

// Client returns a client by its number.
func (f *Federation) Client(id int) (*spec.Client, error) {
	if id < 0 || id >= len(f.Experiment.Clients) {
		return nil, fmt.Errorf("client %d does not exist; there are %d clients", id, len(f.Experiment.Clients))
	}
	return f.Experiment.Clients[id], nil
}

// Settings returns the engine's settings of a run in this process; the caller adds folder, tracing and progress.
func (f *Federation) Settings() engine.Settings {
	settings := f.Task.here().Settings()
	settings.Provider = f.Task.Runtime.Provider
	if why := f.Task.Fallback; why != nil {
		settings.Provider += ": " + why.Error()
	}

	if p := f.Task.Programs; p != nil {
		settings.Client.Programs = p
	}

	if a := f.Task.Protocol.Aggregation; a != nil {
		settings.Client.Guard, settings.Wrap = a.Guard(), a.Wrap
	}

	return settings
}

// Settings returns the engine's settings of a configuration.
func (c Config) Settings() engine.Settings {
	return engine.Settings{Workers: c.Runtime.workers(), Client: client.Settings{Session: c.Runtime.Session(),
		Terms: c.Eval.Terms, Texts: c.Runtime.keptTexts}}
}

// Extractor computes features as a configuration says.
func (c Config) Extractor(progress Progress) (features.Extractor, error) {
	dir, err := c.Runtime.FeatureCache()
	if err != nil {
		return features.Extractor{}, err
	}

	x := features.Extractor{Cache: data.Cache{Dir: dir, Precision: c.Data.Precision}, Session: c.Runtime.Session(),
		Workers: c.Runtime.workers(), Seed: c.Seed}
	if progress != nil {
		x.Progress = func(bundle string, done, total int) { progress("features of "+bundle, done, total) }
	}

	return x, nil
}

// Progress is called during long work.
type Progress func(what string, done, total int)

// of returns the progress of one thing; nil for a nil Progress.
func (p Progress) of(what string) func(done, total int) {
	if p == nil {
		return nil
	}
	return func(done, total int) { p(what, done, total) }
}

// WriteEncoder writes the image towers of a backbone that the method reads.
func (t *Task) WriteEncoder(writer *programs.Writer, model *bundle.Bundle) error {
	towers := []func() (*onnx.ModelProto, error){model.ImageModel}
	if slices.Contains(t.Experiment.Reads(Backbone{model}), method.TokensInput) {
		towers = append(towers, model.TokensModel)
	}

	for _, tower := range towers {
		m, err := tower()
		if err == nil {
			m, err = ops.StandardModel(m)
		}
		if err == nil {
			p := client.Program{Kind: client.EncoderProgram, Backbone: model.Name, Weights: model.WeightsDir()}
			_, err = writer.Program(p, m)
		}
		if err != nil {
			return fmt.Errorf("backbone %s: %w", model.Name, err)
		}
	}

	return nil
}
