package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/models/bundle"
	"promptfed/models/clip"
)

// benchmarkPFL is the shape of the benchmark on CIFAR-10 in pfl-research (Granqvist et al. 2024): 1,000 clients with 50
// images, 50 clients in a round, batches of 10, a test on 10,000 images every 10 rounds.
var benchmarkPFL = workload{Clients: 1000, Cohort: 50, Train: 50, Test: 10, Batch: 10, TestEvery: 10}

// Target of the project: turns of clients per second on the tiny tower, as a multiple of the opponent's.
const wantTurns = 3

// CompareSimulator measures a simulation of PromptFL and the same one in Flower or pfl-research in turns: on a text
// tower of the size of the demo's and on ViT-B/16's, both with random weights, and with clients that compute nothing.
// The opponent, Options.Against, runs in Options.Python. The working folder must be a checkout of the source.
func CompareSimulator(ctx context.Context, m *Measurement) error {
	if m.Backbone != nil {
		return errors.New("--against measures random weights: leave --backbone out")
	}

	demo, err := bundle.Find("tiny-vit-b16")
	if err != nil {
		return err
	}

	m.Workers = m.firstThreads()
	name, tiny, large, empty := m.Against, 1500, 20, 50
	if m.Quick {
		tiny, large, empty = 50, 2, 10
	}

	turns := m.table([]string{"text tower", "rounds", "our turns/s", name, "ours faster", "our MB", name + " MB",
		"prompts differ"}, "turns of clients per second, with the tests; \"faster\" is the median of "+
		"ratios of equal numbers of rounds in turns; MB are the largest memory of all processes together (PSS); "+
		"prompts differ after a round, as a part of what the round changed")

	nothing := m.table([]string{"clients that compute nothing", "our ms of a turn", name, "ours faster"})
	for i, setup := range []struct {
		what   string
		arch   clip.TextArch
		rounds int
	}{{"tiny", demo.Text, cmp.Or(m.Rounds, tiny)}, {"ViT-B/16", m.arch, cmp.Or(m.Rounds, large)},
		{"", oneBlock, empty}} {
		workload := benchmarkPFL
		if workload.Empty = setup.what == ""; workload.Empty {
			workload.Cohort = workload.Clients / 10
		}

		workload.TestEvery = min(workload.TestEvery, setup.rounds)
		runs := setup.rounds / workload.TestEvery
		versus, err := m.versus(ctx, workload, setup.arch, runs, filepath.Join(m.dir, strconv.Itoa(i)))
		if err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(setup.what, "empty turns"), err)
		}

		jobs, faster := float64(workload.TestEvery*workload.Cohort), ratio(&versus.theirs, &versus.ours)
		if workload.Empty {
			each := func(c contestant) Number { return Number{1e3 * median(c.seconds) / jobs, "%.2f"} }
			nothing.add(fmt.Sprintf("%d of %d", workload.Cohort, workload.Clients), each(versus.ours),
				each(versus.theirs), factor(faster))
			continue
		}

		if setup.what == "tiny" {
			m.Title = fmt.Sprintf("PromptFL in %s (%s) and here (%d workers): %d clients, %d train in a round "+
				"on %d images in batches of %d, a test every %d rounds; %d cores, %s", versus.opponent.Version,
				versus.opponent.How, m.Workers, workload.Clients, workload.Cohort, workload.Train, workload.Batch,
				workload.TestEvery, runtime.NumCPU(), platform())
			m.atLeast("turns per second on the tiny tower, in times of "+name+"'s", wantTurns, faster)
		}

		rate := func(c contestant) Number { return tenths(jobs / median(c.seconds)) }
		turns.add(setup.what, runs*workload.TestEvery, rate(versus.ours), rate(versus.theirs), factor(faster),
			megabytes(versus.memory[0]), megabytes(versus.memory[1]), scientific(versus.differ))
	}

	return nil
}

// versus is a comparison of two simulations. A run of ours and theirs is workload.TestEvery rounds.
type versus struct {
	opponent     *opponent
	ours, theirs contestant
	memory       [2]int64 // the largest of each, in bytes
	differ       float64  // of the prompts after a round, as a part of what the round changed
}

// versus measures so many runs of a workload, whose files lie in dir. A first round, which compiles, does not count.
func (o Options) versus(ctx context.Context, workload workload, arch clip.TextArch, runs int, dir string) (
	versus versus, err error) {
	tower, err := randomTower(o.Against, arch, clip.VisionArch{}, dir)
	if err != nil {
		return versus, err
	}

	if !workload.Empty {
		if versus.differ, err = o.agree(ctx, workload, tower); err != nil {
			return versus, err
		}
	}

	workload.Rounds = 2 + runs*workload.TestEvery // the last round, with a test of its own, never begins
	experiment, err := workload.experiment(tower)
	if err == nil {
		err = workload.export(tower, experiment)
	}

	if err != nil {
		return versus, err
	}

	var open opened
	defer open.close(&err)
	ours := o.simulate(ctx, experiment, filepath.Join(dir, "run"), workload.Empty)
	open.add(ours.close, nil)
	if versus.opponent, err = o.startSimulator(ctx, dir); err != nil {
		return versus, err
	}

	open.add(versus.opponent.close, nil)
	if _, err := held(); err != nil {
		return versus, err
	}

	for i := range runs + 1 {
		o.Progress("rounds beside "+o.Against, i, runs+1)
		for k, side := range []struct {
			*contestant
			rounds func(int) error
			memory func() int64
		}{{&versus.ours, ours.rounds, func() int64 { return shareOf(os.Getpid()) }},
			{&versus.theirs, versus.opponent.rounds, versus.opponent.memory}} {
			n := 1
			if i > 0 {
				n = workload.TestEvery
			}

			largest := watch(side.memory)
			began := time.Now()
			err := side.rounds(n)
			seconds := time.Since(began).Seconds()
			versus.memory[k] = max(versus.memory[k], largest())
			if err != nil {
				return versus, err
			}

			if i > 0 {
				side.seconds = append(side.seconds, seconds)
			}
		}
	}

	o.Progress("rounds beside "+o.Against, runs+1, runs+1)
	return versus, nil
}

// agree runs one round of four clients in both simulations and returns the distance of the merged prompts.
func (o Options) agree(ctx context.Context, w workload, tower *tower) (differ float64, err error) {
	w.Clients, w.Cohort, w.Rounds = 4, 4, 1
	experiment, err := w.experiment(tower)
	if err == nil {
		err = w.export(tower, experiment)
	}

	if err != nil {
		return 0, err
	}

	first, err := engine.InitialParams(experiment, experiment.Clients[0])
	if err != nil {
		return 0, err
	}

	result, err := engine.Run(ctx, experiment, engine.Settings{Client: client.Settings{Session: o.session(1)},
		Workers: o.Workers})
	if err != nil {
		return 0, err
	}

	their, err := o.startSimulator(ctx, tower.dir)
	if err != nil {
		return 0, err
	}
	defer their.close()

	if err := their.rounds(1); err != nil {
		return 0, err
	}

	want := result.Prompts["shared/ctx"].Clone()
	got, err := their.tensor("prompt", filepath.Join(tower.dir, "prompt"), want.Shape)
	if err != nil {
		return 0, err
	}

	want.Axpy(-1, first["shared/ctx"])
	got.Axpy(-1, first["shared/ctx"])
	if differ = distance(got, want); differ > 1e-3 {
		return 0, fmt.Errorf("the prompts after a round differ by %.1g of what it changed: %s does other work", differ,
			o.Against)
	}

	return differ, nil
}

// startSimulator starts the opponent on the workload in dir.
func (o Options) startSimulator(ctx context.Context, dir string) (*opponent, error) {
	return startOpponent(ctx, opponents[o.Against], o.Python, dir, strconv.Itoa(o.Workers))
}
