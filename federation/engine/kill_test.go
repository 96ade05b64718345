package engine_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"promptfed/federation/engine"
)

// killFolder names the run folder to the child process.
const killFolder = "PROMPTFED_TEST_KILL_FOLDER"

func longToy(t testing.TB) *engine.Experiment {
	e := toy(t)
	e.Plan.Rounds, e.Plan.Participation, e.Plan.TestEvery = 60, 0.5, 3
	return e
}

// TestKilledAtAnyInstant kills a child process that runs the toy, as kill -9 does, at random instants until one gets
// through, each resuming where the last was killed. The end is that of a run nobody killed.
func TestKilledAtAnyInstant(t *testing.T) {
	if dir := os.Getenv(killFolder); dir != "" {
		if _, err := engine.Run(context.Background(), longToy(t), engine.Settings{Dir: dir, Resume: true, Workers: 2}); err != nil {
			t.Fatal(err)
		}
		return
	}
	whole, dir := t.TempDir(), t.TempDir()
	began := time.Now()
	mustRun(t, longToy(t), engine.Settings{Dir: whole})
	took := time.Since(began)

	r := rand.New(rand.NewPCG(1, 2))
	kills, done := 0, false
	for try := 0; try < 40 && !done; try++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtAnyInstant$")
		cmd.Env = append(os.Environ(), killFolder+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		// The first part of a child's life is loading; the runs get longer, so that one gets through.
		wait := time.Duration(r.Float64()*float64(took)/3) + time.Duration(try+1)*took/12
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("a resumed run failed: %v", err)
			}
			done = true
		case <-time.After(wait):
			cmd.Process.Kill()
			if err := <-ended; err == nil {
				done = true
			} else {
				kills++
			}
		}
	}
	if !done || kills < 3 {
		t.Fatalf("%d kills, done: %v; expected at least 3 kills and an end", kills, done)
	}
	if prompts(t, dir) != prompts(t, whole) {
		t.Errorf("after %d kills the prompts differ", kills)
	}
	for _, at := range []string{dir, filepath.Join(dir, engine.CheckFolder)} {
		left, err := filepath.Glob(filepath.Join(at, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	t.Logf("%d kills; the whole run took %v", kills, took)
}
