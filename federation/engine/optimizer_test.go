package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/optim"
)

// sharedToy returns the toy, whose private prompts have 2 or 4 tokens, with one optimizer for all clients.
func sharedToy(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Training.Optim = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9, WeightDecay: 0.01}
	e.Training.Shared, e.Training.Epochs, e.Plan.Participation = true, 2, 0.75
	return e
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
