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
// The opponent runs in the given Python interpreter. The working folder must be a checkout of the source.
func CompareSimulator(ctx context.Context, o Options, name, python string) (r Report, err error) {
	if o.Backbone != nil {
		return r, errors.New("--against measures random weights: leave --backbone out")
	}
	o.Workers = o.firstThreads()
	if o, _, err = o.complete(); err != nil {
		return r, err
	}
	demo, err := bundle.Find("tiny-vit-b16")
	if err != nil {
		return r, err
	}
	tiny, large, empty := 1500, 20, 50
	if o.Quick {
		tiny, large, empty = 50, 2, 10
	}
	turns := Table{Columns: []string{"text tower", "rounds", "our turns/s", name, "ours faster", "our MB", name + " MB",
		"prompts differ"}, Notes: []string{"turns of clients per second, with the tests; \"faster\" is the median of " +
		"ratios of equal numbers of rounds in turns; MB are the largest memory of all processes together (PSS); " +
		"prompts differ after a round, as a part of what the round changed"}}
	nothing := Table{Columns: []string{"clients that compute nothing", "our ms of a turn", name, "ours faster"}}
	for _, m := range []struct {
		what   string
		arch   clip.TextArch
		rounds int
	}{{"tiny", demo.Text, cmp.Or(o.Rounds, tiny)}, {"ViT-B/16", o.arch, cmp.Or(o.Rounds, large)},
		{"", oneBlock, empty}} {
		w := benchmarkPFL
		if w.Empty = m.what == ""; w.Empty {
			w.Cohort = w.Clients / 10
		}
		w.TestEvery = min(w.TestEvery, m.rounds)
		v, err := o.versus(ctx, w, m.arch, m.rounds/w.TestEvery, name, python)
		if err != nil {
			return r, fmt.Errorf("%s: %w", cmp.Or(m.what, "empty turns"), err)
		}
		of, faster := float64(w.TestEvery*w.Cohort), ratio(&v.theirs, &v.ours)
		if w.Empty {
			each := func(c contestant) Number { return Number{1e3 * median(c.seconds) / of, "%.2f"} }
			nothing.add(fmt.Sprintf("%d of %d", w.Cohort, w.Clients), each(v.ours), each(v.theirs), factor(faster))
			continue
		}
		if m.what == "tiny" {
			r.Title = fmt.Sprintf("PromptFL in %s (%s) and here (%d workers): %d clients, %d train in a round on %d "+
				"images in batches of %d, a test every %d rounds; %d cores, %s", v.opponent.Version, v.opponent.How,
				o.Workers, w.Clients, w.Cohort, w.Train, w.Batch, w.TestEvery, runtime.NumCPU(), platform())
			r.target("turns per second on the tiny tower, in times of "+name+"'s", wantTurns, faster,
				faster >= wantTurns)
		}
		rate := func(c contestant) Number { return tenths(of / median(c.seconds)) }
		turns.add(m.what, m.rounds, rate(v.ours), rate(v.theirs), factor(faster), megabytes(v.memory[0]),
			megabytes(v.memory[1]), scientific(v.differ))
	}
	r.Tables = []Table{turns, nothing}
	return r, nil
}

// versus is a comparison of two simulations. A run of ours and theirs is workload.TestEvery rounds.
type versus struct {
	opponent     *opponent
	ours, theirs contestant
	memory       [2]int64 // the largest of each, in bytes
	differ       float64  // of the prompts after a round, as a part of what the round changed
}

// versus measures so many runs of a workload. A first round, which compiles, does not count.
func (o Options) versus(ctx context.Context, w workload, arch clip.TextArch, runs int, name, python string) (v versus,
	err error) {
	dir, remove, err := scratch("400 MB")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	t, err := randomTower(name, arch, clip.VisionArch{}, dir)
	if err != nil {
		return v, err
	}
	if !w.Empty {
		if v.differ, err = o.agree(ctx, w, t, name, python); err != nil {
			return v, err
		}
	}
	w.Rounds = 2 + runs*w.TestEvery // the last round, with a test of its own, never begins
	e, err := w.experiment(t)
	if err == nil {
		err = w.export(t, e)
	}
	if err != nil {
		return v, err
	}
	var open opened
	defer open.close(&err)
	ours := o.simulate(ctx, e, filepath.Join(dir, "run"), w.Empty)
	open.add(ours.close, nil)
	if v.opponent, err = startOpponent(ctx, opponents[name], python, dir, strconv.Itoa(o.Workers)); err != nil {
		return v, err
	}
	open.add(v.opponent.close, nil)
	if _, err := held(); err != nil {
		return v, err
	}
	for i := range runs + 1 {
		o.Progress("rounds beside "+name, i, runs+1)
		for k, side := range []struct {
			*contestant
			rounds func(int) error
			memory func() int64
		}{{&v.ours, ours.rounds, func() int64 { return shareOf(os.Getpid()) }},
			{&v.theirs, v.opponent.rounds, v.opponent.memory}} {
			n := 1
			if i > 0 {
				n = w.TestEvery
			}
			largest := watch(side.memory)
			began := time.Now()
			err := side.rounds(n)
			seconds := time.Since(began).Seconds()
			v.memory[k] = max(v.memory[k], largest())
			if err != nil {
				return v, err
			}
			if i > 0 {
				side.seconds = append(side.seconds, seconds)
			}
		}
	}
	o.Progress("rounds beside "+name, runs+1, runs+1)
	return v, nil
}

// agree runs one round of four clients in both simulations and returns the distance of the merged prompts.
func (o Options) agree(ctx context.Context, w workload, t *tower, name, python string) (differ float64, err error) {
	w.Clients, w.Cohort, w.Rounds = 4, 4, 1
	e, err := w.experiment(t)
	if err == nil {
		err = w.export(t, e)
	}
	if err != nil {
		return 0, err
	}
	first, err := engine.InitialParams(e, e.Clients[0])
	if err != nil {
		return 0, err
	}
	r, err := engine.Run(ctx, e, engine.Settings{Client: client.Settings{Session: o.session(1)}, Workers: o.Workers})
	if err != nil {
		return 0, err
	}
	their, err := startOpponent(ctx, opponents[name], python, t.dir, strconv.Itoa(o.Workers))
	if err != nil {
		return 0, err
	}
	defer their.close()
	if err := their.rounds(1); err != nil {
		return 0, err
	}
	want := r.Prompts["shared/ctx"].Clone()
	got, err := their.tensor("prompt", filepath.Join(t.dir, "prompt"), want.Shape)
	if err != nil {
		return 0, err
	}
	want.Axpy(-1, first["shared/ctx"])
	got.Axpy(-1, first["shared/ctx"])
	if differ = distance(got, want); differ > 1e-3 {
		return 0, fmt.Errorf("the prompts after a round differ by %.1g of what it changed: %s does other work", differ,
			name)
	}
	return differ, nil
}
