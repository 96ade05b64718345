package engine_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// These environment variables name the run folder for a child process, and the round after which it waits for its
// death; 0 for none.
const killFolder, killRound = "PROMPTFED_TEST_KILL_FOLDER", "PROMPTFED_TEST_KILL_ROUND"

func longToy(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Plan.Rounds, e.Plan.Participation, e.Plan.TestEvery = 60, 0.5, 3
	return e
}

// TestKilledAtAnyInstant calls killed with the toy.
func TestKilledAtAnyInstant(t *testing.T) {
	killed(t, longToy, 0, 1, 2, 8, 15, 16, 30, 45)
}

// TestKilledWithSharedOptimizer: the optimizer state that passes from client to client is part of the checkpoint.
func TestKilledWithSharedOptimizer(t *testing.T) {
	killed(t, func(t testing.TB) *spec.Experiment {
		e := longToy(t)
		e.Training = sharedToy(t).Training
		e.Training.Epochs = 1
		return e
	}, 1, 8, 20, 40)
}

// killed starts a child process that runs the toy and kills it (SIGKILL) at a random time after it committed some
// rounds. The next child resumes, until one finishes. The result is that of a run that nobody killed. A child that is
// ten rounds further waits, so that it is never finished when it is killed.
func killed(t *testing.T, toy func(testing.TB) *spec.Experiment, after ...int) {
	if dir := os.Getenv(killFolder); dir != "" {
		last, err := strconv.Atoi(os.Getenv(killRound))
		goldentest.NoError(t, err)
		if _, err := engine.Run(context.Background(), toy(t), engine.Settings{Dir: dir, Resume: true, Workers: 2,
			OnRound: func(r record.Record) {
				if r.Round+1 == last {
					busytest.Delay(time.Hour)
				}
			}}); err != nil {
			t.Fatal(err)
		}
		return
	}
	whole, dir := t.TempDir(), t.TempDir()
	mustRun(t, toy(t), engine.Settings{Dir: whole})

	var said bytes.Buffer
	child := func(last int) (*exec.Cmd, chan error) {
		said.Reset()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), killFolder+"="+dir, killRound+"="+strconv.Itoa(last))
		cmd.Stdout, cmd.Stderr = &said, &said
		goldentest.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	committed := func() int {
		b, _ := os.ReadFile(filepath.Join(dir, record.RoundsFile))
		return bytes.Count(b, []byte("\n"))
	}
	for _, rounds := range after {
		cmd, ended := child(rounds + 10)
		busytest.Until(t, "a round", func() bool { return committed() >= rounds || len(ended) > 0 })
		busytest.Delay(rand.N(25 * time.Millisecond))
		cmd.Process.Kill()
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Fatalf("a resumed run ended before it was killed: %v\n%s", err, &said)
		}
	}
	if _, ended := child(0); <-ended != nil {
		t.Fatalf("the last resumed run failed:\n%s", &said)
	}
	if prompts(t, dir) != prompts(t, whole) {
		t.Errorf("after %d kills the prompts differ", len(after))
	}
	for _, at := range []string{dir, filepath.Join(dir, record.CheckFolder)} {
		left, err := filepath.Glob(filepath.Join(at, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}
