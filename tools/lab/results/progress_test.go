package results

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"promptfed/tools/promptfed/runfolder"
)

// A run of two seconds a round without a result: its lock, its last call and the age of its files give the state. Seven
// of nine rounds remain, of which the age of the last one is subtracted.
func TestStatesWithoutAResult(t *testing.T) {
	const rounds = "rounds.jsonl"
	for _, c := range []struct {
		name, call string // call of provenance.json
		held       bool
		age        time.Duration // of all files
		state      State
		left       time.Duration
	}{
		{"unknown", `{}`, false, 0, Unfinished, 0},
		{"ended in order", `{"seconds": 3}`, false, 0, Stopped, 0},
		{"ended with an error", `{"seconds": 3, "error": "no\nspace"}`, false, 0, Failed, 0},
		{"at work", `{}`, true, 0, Running, 14 * time.Second},
		{"at work again", `{"seconds": 3, "error": "no"}, {}`, true, 0, Running, 14 * time.Second},
		{"longer than expected", `{}`, true, time.Minute, Running, 0},
		{"silent", `{}`, true, time.Hour, Stalled, 0},
	} {
		dir := t.TempDir()
		put(t, dir, "config.yaml", config("a", "coop", 1, 9), rounds, lines([2]float64{.5, .5}, [2]float64{.5, .5}),
			"provenance.json", `{"calls": [`+c.call+`]}`)
		free := Fingerprint(dir)
		if c.held {
			release, err := runfolder.Claim(dir, runfolder.Use{Resume: true})
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if Fingerprint(dir) == free {
				t.Errorf("%s: a page would not notice that the run continues", c.name)
			}
			then := time.Now().Add(-c.age)
			for _, name := range []string{rounds, "provenance.json", runfolder.LockFile} {
				if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
					t.Fatal(err)
				}
			}
		}
		run := load(t, dir).Groups[0].Runs[0]
		if run.State != c.state || run.Left > c.left || (run.Left > 0) != (c.left > 0) || run.Sign.IsZero() {
			t.Errorf("%s: %s, %v left, %v", c.name, run.State, run.Left, run.Sign)
		}
		if want := map[State]string{Failed: "no; space", Running: "2 of 9 rounds so far"}[c.state]; want != "" &&
			run.Reason != want {
			t.Errorf("%s: %q", c.name, run.Reason)
		}
	}
}

// The lock of a process that was killed is free, and the time of its file is that of the last sign of life.
func TestKilledRun(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "config.yaml", config("a", "coop", 1, 9), "rounds.jsonl", lines([2]float64{.5, .5}),
		"provenance.json", `{"calls": [{}]}`)
	release, err := runfolder.Claim(dir, runfolder.Use{Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	release()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"rounds.jsonl", "provenance.json", runfolder.LockFile} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Truncate(time.Second)
	runfolder.Touch(dir)
	if run := load(t, dir).Groups[0].Runs[0]; run.State != Killed || run.Sign.Before(before) || run.Remaining() != "" {
		t.Errorf("%s, %v, %q", run.State, run.Sign, run.Remaining())
	}
}
