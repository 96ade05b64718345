package engine_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
)

// killFolder is the environment variable that names the run folder for the child process.
const killFolder = "PROMPTFED_TEST_KILL_FOLDER"

func longToy(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Plan.Rounds, e.Plan.Participation, e.Plan.TestEvery = 60, 0.5, 3
	return e
}

// TestKilledAtAnyInstant calls killed with the toy.
func TestKilledAtAnyInstant(t *testing.T) {
	killed(t, longToy, 4, 0, 1, 2, 8, 15, 16, 30, 45)
}

// TestKilledWithSharedOptimizer: the optimizer state that passes from client to client is part of the checkpoint.
func TestKilledWithSharedOptimizer(t *testing.T) {
	killed(t, func(t testing.TB) *spec.Experiment {
		e := longToy(t)
		e.Training = sharedToy(t).Training
		e.Training.Epochs = 1
		return e
	}, 2, 1, 8, 20, 40)
}

// killed starts a child process that runs the toy and kills it (SIGKILL) at a random time after it committed some
// rounds. The next child resumes, until one finishes. The result is that of a run that nobody killed. At least so many
// kills must hit a running process.
func killed(t *testing.T, toy func(testing.TB) *spec.Experiment, least int, after ...int) {
	if dir := os.Getenv(killFolder); dir != "" {
		if _, err := engine.Run(context.Background(), toy(t), engine.Settings{Dir: dir, Resume: true,
			Workers: 2}); err != nil {
			t.Fatal(err)
		}
		return
	}
	whole, dir := t.TempDir(), t.TempDir()
	mustRun(t, toy(t), engine.Settings{Dir: whole})

	var said bytes.Buffer
	child := func() (*exec.Cmd, chan error) {
		said.Reset()
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), killFolder+"="+dir), &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	committed := func() int {
		b, _ := os.ReadFile(filepath.Join(dir, record.RoundsFile))
		return bytes.Count(b, []byte("\n"))
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills := 0
	for _, rounds := range after {
		cmd, ended := child()
		limit := time.Now().Add(time.Minute)
		for committed() < rounds && len(ended) == 0 && time.Now().Before(limit) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(r.Int64N(int64(25 * time.Millisecond))))
		cmd.Process.Kill()
		if err := <-ended; err != nil && err.Error() != "signal: killed" {
			t.Fatalf("a resumed run failed: %v\n%s", err, &said)
		} else if err != nil {
			kills++
		}
	}
	if _, ended := child(); <-ended != nil {
		t.Fatalf("the last resumed run failed:\n%s", &said)
	}
	if kills < least {
		t.Errorf("only %d kills hit a run", kills)
	}
	if prompts(t, dir) != prompts(t, whole) {
		t.Errorf("after %d kills the prompts differ", kills)
	}
	for _, at := range []string{dir, filepath.Join(dir, record.CheckFolder)} {
		left, err := filepath.Glob(filepath.Join(at, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	t.Logf("%d kills", kills)
}
