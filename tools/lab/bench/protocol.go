package bench

import (
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/partition"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// protocol is the setup of an experiment.
type protocol struct {
	method        string
	with          []string
	options       map[string]any
	classes       []string
	images        int // of the whole set, split 60/20/20 inside every client
	clients       int
	participation float64
	batch         int
	rounds        int
	testEvery     int
}

// tableS5 returns the protocol of Table S5 of FedAPPR's paper on Caltech101. The paper counts 6,593 images and 101
// classes. configs/papers/fedappr/table-s5.yaml holds the settings that the paper does not state. Here class names have
// one to three tokens, and all classes have equally many images.
func tableS5() protocol {
	return protocol{method: "promptfl", options: map[string]any{"tokens": 16},
		classes: append(clip.CIFAR100.Names(), clip.CIFAR10.Names()[0]), images: 6593, clients: 100, participation: 0.2,
		batch: 64, testEvery: 1}
}

// describe returns the experiment without clients.
func (p protocol) describe() (*spec.Experiment, error) {
	m, err := methods.Build(p.method, p.with, p.options)
	if err != nil {
		return nil, err
	}

	return &spec.Experiment{Name: "bench", MethodName: p.method, Method: m, Classes: p.classes,
		Template: "a photo of a {}.",
		Training: spec.Training{Epochs: 1, Batch: p.batch, Schedule: optim.Schedule{Kind: "constant"},
			Optim: optim.Config{Name: "sgd", LR: 0.001, Momentum: 0.9, WeightDecay: 5e-4}},
		Plan: spec.Plan{Rounds: p.rounds, Participation: p.participation, TestEvery: max(1, p.testEvery),
			Seed: seed}}, nil
}

// experiment distributes the examples among clients and draws each client's backbone from towers.
func (p protocol) experiment(towers []*tower) (*spec.Experiment, error) {
	experiment, err := p.describe()
	if err != nil {
		return nil, err
	}

	set := &data.Set{Name: "random", Classes: p.classes, Pool: make([]data.Example, p.images)}
	for i := range set.Pool {
		set.Pool[i].Label = i % len(p.classes)
	}

	how := partition.Defaults()
	how.Kind, how.Clients, how.Beta, how.Uncap, how.Fill = "dirichlet", p.clients, 0.1, true, true
	parts, err := partition.Split(how, set, 0, seed)
	if err != nil {
		return nil, err
	}

	assign, drawn := method.Rand(seed, "backbones"), examples{}
	labels := func(indices []int) []int64 {
		return convert.Slice(indices, func(j int) int64 { return int64(set.Pool[j].Label) })
	}
	for i, part := range parts {
		t := towers[assign.IntN(len(towers))]
		reads := experiment.Reads(t)
		experiment.Clients = append(experiment.Clients, &spec.Client{ID: i, Backbone: t,
			Train: drawn.of(t.Task(), i, "train", labels(part.Train), reads),
			Test:  drawn.of(t.Task(), i, "test", labels(part.Test), reads)})
	}

	return experiment, nil
}

// examples generates random rows in place of images. Their values do not influence the time. It keeps a few rows of
// large data by kind and shape, which all clients repeat.
type examples map[string]spec.RowReader

// differentImages is how many rows of large data are kept: fewer than the rounds of Methods, whose profile then leaves
// out what is computed once for each image (see readProfiles).
const differentImages = methodRounds - 1

// repeated repeats a few rows cyclically.
type repeated struct{ spec.InMemory }

// Read returns rows by their index, modulo the number of stored rows.
func (r repeated) Read(index []int) (*tensor.Tensor, error) {
	at := convert.Slice(index, func(j int) int { return j % r.Shape[0] })
	return r.InMemory.Read(at)
}

// of returns a data set for the given labels, with unit rows of images and the other inputs in reads.
func (x examples) of(t method.ClientSpec, client int, name string, labels []int64, reads []string) *spec.Features {
	result := &spec.Features{Class: labels}
	result.Add(method.ImageInput, []spec.RowReader{spec.InMemory{Tensor: features.L2Normalize(
		method.Draw(seed, client, name+" images", []int{len(labels), t.Dim}, 1))}})
	for _, kind := range reads {
		shape := []int{differentImages, 3, t.ImageSize, t.ImageSize}
		switch kind {
		case method.PatchesInput:
			shape = []int{differentImages, t.Patches, t.Dim}
		case method.TokensInput:
			shape = []int{differentImages, t.Tokens, t.VisionWidth}
		}

		key := fmt.Sprint(kind, shape)
		if x[key] == nil {
			rows := method.Draw(seed, 0, key, shape, 1)
			if kind == method.PatchesInput {
				features.L2Normalize(rows)
			}
			x[key] = repeated{spec.InMemory{Tensor: rows}}
		}

		result.Add(kind, []spec.RowReader{x[key]})
	}

	return result
}
