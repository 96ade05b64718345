package bench

import (
	"context"
	"path/filepath"
	"strconv"

	"promptfed/federation/data/features"
	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// workload is the shape of a simulation of PromptFL with ten classes.
type workload struct {
	Clients   int  `json:"clients"`
	Cohort    int  `json:"cohort"` // clients that train in a round
	Train     int  `json:"train"`  // images of a client
	Test      int  `json:"test"`
	Batch     int  `json:"batch"`
	TestEvery int  `json:"test_every"` // rounds between tests of all clients
	Empty     bool `json:"empty"`      // clients compute nothing

	Rounds int `json:"-"`
}

// sharedRows is the largest number of image features, which the clients share.
const sharedRows = 60_000

// experiment distributes random image features among the clients.
func (w workload) experiment(tower *tower) (*spec.Experiment, error) {
	classes := clip.CIFAR10.Names()
	experiment, err := protocol{method: "promptfl", options: map[string]any{"tokens": tokens}, classes: classes,
		batch: w.Batch, rounds: w.Rounds, participation: float64(w.Cohort) / float64(w.Clients),
		testEvery: w.TestEvery}.describe()
	if err != nil {
		return nil, err
	}

	n := min(sharedRows, w.Clients*(w.Train+w.Test))
	all := &spec.Features{Class: make([]int64, n), Views: []spec.RowReader{spec.InMemory{
		Tensor: features.L2Normalize(method.Draw(seed, 0, "images", []int{n, tower.Task().Dim}, 1))}}}
	for i := range all.Class {
		all.Class[i] = int64(i % len(classes))
	}

	next := 0
	pick := func(count int) *spec.Features {
		rows := make([]int, count)
		for i := range rows {
			rows[i], next = next, (next+1)%n
		}
		return all.Pick(rows)
	}

	for i := range w.Clients {
		experiment.Clients = append(experiment.Clients, &spec.Client{ID: i, Backbone: tower, Train: pick(w.Train),
			Test: pick(w.Test)})
	}

	return experiment, nil
}

// export writes the workload for tools/golden/sim_task.py beside the tower's weights. The training images of a client
// are in the order of its first round.
func (w workload) export(tower *tower, experiment *spec.Experiment) error {
	set, err := tower.suffixes(experiment.Classes)
	if err != nil {
		return err
	}

	params, err := engine.InitialParams(experiment, experiment.Clients[0])
	if err != nil {
		return err
	}

	image, label := tensor.New(0, tower.Task().Dim), tensor.OfInts(nil, 0)
	for _, site := range experiment.Clients {
		order := site.Train.Order(method.Rand(experiment.Plan.Seed, "round", "0", "client", strconv.Itoa(site.ID), ""))
		for _, part := range []struct {
			of   method.Data
			rows []int
		}{{site.Train, order}, {site.Test, tensor.Indices(site.Test.Len())}} {
			m, err := part.of.Batch(part.rows, nil)
			if err != nil {
				return err
			}
			image.Data = append(image.Data, m[method.ImageInput].Data...)
			label.Ints = append(label.Ints, m[method.LabelInput].Ints...)
		}
	}

	image.Shape[0], label.Shape[0] = len(label.Ints), len(label.Ints)
	data := tensor.Map{"image": image, "label": label}
	if err := safetensors.WriteFile(filepath.Join(tower.dir, "clients.safetensors"), data, nil); err != nil {
		return err
	}

	if err := export(tower, set, tensor.Map{"ctx": tensor.Stack([]*tensor.Tensor{params["shared/ctx"]})}); err != nil {
		return err
	}

	o := experiment.Training.Optim
	return atomicfile.Write(filepath.Join(tower.dir, "workload.json"), atomicfile.JSON(struct {
		workload
		LR          float64 `json:"lr"`
		Momentum    float64 `json:"momentum"`
		WeightDecay float64 `json:"weight_decay"`
	}{w, o.LR, o.Momentum, o.WeightDecay}, ""))
}

// simulation is a run of an experiment that stops between rounds.
type simulation struct {
	more chan int
	done chan error
	stop context.CancelFunc
}

// simulate starts a run in a folder. No round begins before rounds is called. Clients without a model compute nothing.
func (o Options) simulate(ctx context.Context, experiment *spec.Experiment, dir string, empty bool) *simulation {
	ctx, stop := context.WithCancel(ctx)
	simulation := &simulation{more: make(chan int), done: make(chan error, 1), stop: stop}
	left := 0
	wait := func() {
		select {
		case left = <-simulation.more:
		case <-ctx.Done():
		}
	}

	set := engine.Settings{Client: client.Settings{Session: o.session(1)}, Dir: dir, Workers: o.Workers,
		OnRound: func(record.Record) {
			if left--; left == 0 {
				simulation.done <- nil
				wait()
			}
		}}

	if empty {
		set.Executor = idle{}
	}

	go func() {
		defer close(simulation.done)
		wait()
		_, err := engine.Run(ctx, experiment, set)
		simulation.done <- err
	}()
	return simulation
}

// rounds runs so many rounds more. It is not called again after an error.
func (s *simulation) rounds(n int) error {
	select {
	case s.more <- n:
		return <-s.done
	case err := <-s.done: // the run has ended already
		return err
	}
}

func (s *simulation) close() error {
	s.stop()
	<-s.done
	return nil
}

// idle answers instructions to train with the parameters that the server sent.
type idle struct{}

func (idle) Execute(_ context.Context, site *spec.Client, instruction message.Instruction,
	_ func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	up := method.Upload{Client: site.ID, N: site.Train.Len(), Shared: instruction.Shared.Clone()}
	return message.Reply{Client: site.ID, Upload: up, Stats: message.Stats{Steps: 1}},
		&message.ClientState{Own: up.Shared}, nil
}
