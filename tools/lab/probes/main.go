package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"

	"promptfed/federation/data/sets"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/optim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "probes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	p, err := open(ctx, 32)
	if err != nil {
		return err
	}
	defer p.source.Close()

	if err := p.membership(ctx); err != nil {
		return err
	}

	return p.inversion(ctx)
}

// classes of the images: few enough for a reconstruction in seconds.
var classes = []string{"circle", "square", "triangle", "star", "house", "tree", "fish", "heart"}

// clients is the number of clients; all of them upload in every round.
const clients = 10

// probe is a pool of images with a frozen backbone.
type probe struct {
	source  *experiment.Federation
	pool    *spec.Features
	victims map[uint64]*victim // by seed, which determines the server's first prompt
}

// open creates a pool with the given number of images per class.
func open(ctx context.Context, perClass int) (*probe, error) {
	c := experiment.Defaults()
	c.Data.Set = "synthetic"
	c.Data.Generator = sets.Generator{Classes: classes, Domains: []string{"neon"}, Train: perClass, Test: 2,
		Difficulty: 0.35}
	c.Partition.Clients = 1
	t, err := experiment.Open(ctx, c, nil)
	if err != nil {
		return nil, err
	}

	f, err := experiment.Federate(ctx, t, nil)
	if err != nil {
		return nil, err
	}

	pool, ok := f.Experiment.Clients[0].Train.(*spec.Features)
	if !ok {
		return nil, fmt.Errorf("the training data are %T", f.Experiment.Clients[0].Train)
	}

	return &probe{f, pool, map[uint64]*victim{}}, nil
}

// protection is the defence between a client and the server.
type protection struct {
	name    string
	with    []string
	options map[string]any
	blind   bool // no upload
	summed  bool // the server sees only the mean of all uploads
}

var protections = []protection{
	{name: "none"},
	{name: "top 10 %", with: []string{"compress"}, options: map[string]any{"share": 0.1}},
	{name: "signs", with: []string{"compress"}, options: map[string]any{"kind": "sign"}},
	{name: "noise of clients, z = 0.1", with: []string{"dp"}, options: noise(0.1)},
	{name: "noise of clients, z = 1", with: []string{"dp"}, options: noise(1)},
	{name: "sums (secure aggregation)", summed: true},
}

// noise returns the options of local differential privacy with a clip larger than the updates.
func noise(z float64) map[string]any {
	return map[string]any{"where": "client", "clip": 0.5, "noise": z, "delta": 0.01}
}

// experiment returns PromptFL under a protection, with clients that train on images of the pool.
func (p *probe) experiment(s protection, seed uint64, train [][]int, training spec.Training,
	rounds int) (*spec.Experiment, error) {
	options := map[string]any{"tokens": 4}
	maps.Copy(options, s.options)
	m, err := methods.Build("promptfl", s.with, options)
	if err != nil {
		return nil, err
	}

	exp := &spec.Experiment{Name: "probe", MethodName: "promptfl", Method: m, Classes: p.source.Experiment.Classes,
		Template: p.source.Experiment.Template, Training: training,
		Plan: spec.Plan{Rounds: rounds, TestEvery: rounds, Seed: seed}}
	for i, rows := range train {
		exp.Clients = append(exp.Clients, &spec.Client{ID: i, Backbone: p.source.Experiment.Clients[0].Backbone,
			Train: p.pool.Pick(rows), Test: p.pool.Pick(rows)})
	}

	return exp, nil
}

// sgd returns the settings of plain gradient descent.
func sgd(epochs int, lr float64) spec.Training {
	return spec.Training{Epochs: epochs, Batch: 32, Optim: optim.Config{Name: "sgd", LR: lr}}
}

// deal draws n rows of each of the given number of classes for each client, no row twice, and returns the remaining
// rows too.
func (p *probe) deal(seed uint64, classes, n int) (dealt [][]int, left []int) {
	r := method.Rand(seed, "deal")
	rows := map[int64][]int{}
	for _, i := range r.Perm(p.pool.Len()) {
		rows[p.pool.Class[i]] = append(rows[p.pool.Class[i]], i)
	}

	dealt = make([][]int, clients)
	for k := range dealt {
		for _, c := range r.Perm(len(p.source.Experiment.Classes))[:classes] {
			y := int64(c)
			dealt[k], rows[y] = append(dealt[k], rows[y][:n]...), rows[y][n:]
		}
	}

	for c := range p.source.Experiment.Classes {
		left = append(left, rows[int64(c)]...)
	}

	return dealt, left
}
