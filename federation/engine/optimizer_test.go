package engine_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/runtime/optim"
)

// sharedToy returns the toy, whose private prompts have 2 or 4 tokens, with one optimizer for all clients.
func sharedToy(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Training.Optim = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9, WeightDecay: 0.01}
	e.Training.Shared, e.Training.Epochs, e.Plan.Participation = true, 2, 0.75
	return e
}

// Each parameter has one momentum buffer by its name and shape. The buffer passes through the clients by number and
// through the rounds: b = 0.9 b + g + 0.01 p, p' = p - 0.05 b, computed here from the traced gradients. Clients 0 and 2
// have private prompts of two tokens and the others of four, so there are two buffers.
func TestSharedOptimizerGoesRound(t *testing.T) {
	rec := trace.NewRecorder()
	mustRun(t, sharedToy(t), engine.Settings{Settings: client.Settings{Tracer: rec}, Workers: 4})
	steps := slices.Clone(rec.Steps)
	slices.SortFunc(steps, func(a, b trace.StepRecord) int {
		return 1000000*(a.Round-b.Round) + 1000*(a.Client-b.Client) + a.Step - b.Step
	})
	buffers := map[string][]float64{}
	for _, s := range steps {
		for _, name := range []string{"global", "local"} {
			turn := fmt.Sprintf("r%d/c%d/", s.Round, s.Client)
			before := rec.Tensors[turn+"begin/"+name]
			if s.Step > 0 {
				before = rec.Tensors[fmt.Sprintf("%ss%d/after/%s", turn, s.Step-1, name)]
			}
			g, after := rec.Tensors[fmt.Sprintf("%ss%d/grad/%s", turn, s.Step, name)],
				rec.Tensors[fmt.Sprintf("%ss%d/after/%s", turn, s.Step, name)]
			at := fmt.Sprint(name, before.Shape)
			if buffers[at] == nil {
				buffers[at] = make([]float64, len(before.Data))
			}
			for i := range before.Data {
				b := 0.9*buffers[at][i] + float64(g.Data[i]) + 0.01*float64(before.Data[i])
				buffers[at][i] = b
				if want := float64(before.Data[i]) - 0.05*b; math.Abs(want-float64(after.Data[i])) > 2e-6 {
					t.Fatalf("%ss%d: element %d of %s is %v, by hand %v", turn, s.Step, i, name, after.Data[i], want)
				}
			}
		}
	}
	if len(buffers) != 3 {
		t.Errorf("%d buffers, want those of global and of two shapes of local", len(buffers))
	}
}

// The number of workers and the encoding change nothing. Fresh optimizers have another result and another fingerprint.
func TestSharedOptimizerIsDeterministic(t *testing.T) {
	run := func(e *spec.Experiment, set engine.Settings) string {
		set.Dir = t.TempDir()
		mustRun(t, e, set)
		return prompts(t, set.Dir)
	}
	want := run(sharedToy(t), engine.Settings{Workers: 1})
	if run(sharedToy(t), engine.Settings{Workers: 4}) != want || run(sharedToy(t), engine.Settings{Workers: 3,
		Encode: true}) != want {
		t.Error("workers or encoding change what is learned")
	}
	fresh := sharedToy(t)
	fresh.Training.Shared = false
	if run(fresh, engine.Settings{}) == want || fresh.Fingerprint() == sharedToy(t).Fingerprint() ||
		fresh.RunSpec().Mismatch(sharedToy(t).RunSpec()) == nil {
		t.Error("fresh optimizers are not told apart")
	}
}

// A run that was interrupted in any turn continues with the buffers of the last committed round.
func TestSharedOptimizerResumes(t *testing.T) {
	whole := t.TempDir()
	mustRun(t, sharedToy(t), engine.Settings{Dir: whole})
	for turn := range 9 {
		dir := t.TempDir()
		ctx, stop := context.WithCancel(context.Background())
		n := 0
		_, err := engine.Run(ctx, sharedToy(t), engine.Settings{Dir: dir, OnTurn: func(o message.Instruction, _ int) {
			if o.Kind == message.Train {
				if n == turn {
					stop()
				}
				n++
			}
		}})
		stop()
		if err == nil {
			t.Fatalf("turn %d did not break the run off", turn)
		}
		mustRun(t, sharedToy(t), engine.Settings{Dir: dir, Resume: true, Workers: 2})
		if prompts(t, dir) != prompts(t, whole) {
			t.Errorf("broken off after turn %d the prompts differ", turn)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, record.CheckFolder, ".*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// remoteOnly stands for machines that execute turns.
type remoteOnly struct{ client.RemoteExecutor }

func TestSharedOptimizerStaysHere(t *testing.T) {
	refused(t, sharedToy(t), engine.Settings{Executor: remoteOnly{}}, "train.optimizer_state", "one process")
	refused(t, sharedToy(t), engine.Settings{Wrap: func(c message.Cohort) message.Cohort { return c }},
		"secure aggregation")
	if !strings.Contains(fmt.Sprintf("%+v", sharedToy(t).Training), "Shared:true") {
		t.Error("the terms do not say it")
	}
}
