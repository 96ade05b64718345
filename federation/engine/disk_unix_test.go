//go:build unix

package engine_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
)

// TestFullDisk simulates a full disk from round 2 on by a limit on file sizes: the clients' file does not fit.
// Committed rounds stay, and a resumed run continues from there.
func TestFullDisk(t *testing.T) {
	const folder = "PROMPTFED_TEST_DISK_FOLDER"
	experiment := func() *spec.Experiment {
		return withMethod(buildMethod(t, "coop", nil, map[string]any{"tokens": 64}))
	}
	if dir := os.Getenv(folder); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		_, err := engine.Run(context.Background(), experiment(), engine.Settings{Dir: dir,
			OnRound: func(r record.Record) {
				if r.Round == 1 {
					if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 2000,
						Max: 2000}); err != nil {
						t.Error(err)
					}
				}
			}})
		says(t, err, "round 3", "cannot write", "the previous checkpoint is intact")
		return
	}
	whole, dir := t.TempDir(), t.TempDir()
	mustRun(t, experiment(), engine.Settings{Dir: whole})
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
	cmd.Env = append(os.Environ(), folder+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rounds := 0
	mustRun(t, experiment(), engine.Settings{Dir: dir, Resume: true, OnTurn: func(o message.Instruction, _ int) {
		if o.Kind == message.Train && o.Round < 2 {
			t.Errorf("round %d was run again", o.Round)
		}
	}, OnRound: func(record.Record) { rounds++ }})
	if rounds != 3 || prompts(t, dir) != prompts(t, whole) {
		t.Errorf("%d rounds; the resumed run ends elsewhere, or not at all", rounds)
	}
}
