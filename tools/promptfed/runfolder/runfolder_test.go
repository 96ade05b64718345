package runfolder

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/filetest"
)

func there(path ...string) bool {
	_, err := os.Stat(filepath.Join(path...))
	return err == nil
}

// A folder with a finished round is refused without --resume or --force. A folder without one is used again, and its
// unfinished run is removed. A folder that no run has used is refused. Other files stay in any case.
func TestClaim(t *testing.T) {
	for _, c := range []struct {
		what   string
		rounds string // content of rounds.jsonl
		use    Use
		refuse string
		kept   bool // files of the run
	}{
		{"begun only", "", Use{}, "", false},
		{"no run", "", Use{}, "holds no run, but has rounds.jsonl;", true},
		{"a finished round", "{}\n", Use{}, "--force", true},
		{"to go on", "{}\n", Use{Resume: true}, "", true},
		{"to replace", "{}\n", Use{Force: true}, "", false},
		{"both", "{}\n", Use{Resume: true, Force: true}, "give only one of them", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			if c.what != "no run" {
				filetest.Write(t, filepath.Join(dir, LockFile), "")
			}
			filetest.Write(t, filepath.Join(dir, record.RoundsFile), c.rounds)
			filetest.Write(t, filepath.Join(dir, "plots", "accuracy.png"), "")
			filetest.Write(t, filepath.Join(dir, "notes.txt"), "mine")
			release, err := Claim(dir, c.use)
			if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !errors.As(err, new(Occupied)) ||
				!strings.Contains(err.Error(), c.refuse)) {
				t.Fatalf("error %v", err)
			}
			if err == nil {
				release()
			}
			if there(dir, record.RoundsFile) != c.kept || there(dir, "plots") != c.kept || !there(dir, "notes.txt") {
				t.Errorf("rounds %v, plots %v, notes %v", there(dir, record.RoundsFile), there(dir, "plots"),
					there(dir, "notes.txt"))
			}
		})
	}
}

// Only the cell may use the folder of a cell of a sweep: a table would show any other run with the labels of the cell.
// --force replaces the whole sweep by a run.
func TestCellsFolder(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, configs.PlanFile), `{"name":"s","cells":[{"folder":"p/seed-1"}]}`)
	cell := filepath.Join(dir, "p", "seed-1")
	filetest.Write(t, filepath.Join(cell, record.RoundsFile), "{}\n")
	err := Check(cell, Use{Force: true})
	if !errors.As(err, new(Occupied)) || !strings.Contains(err.Error(), "is a cell of the sweep in "+dir) {
		t.Errorf("a run in a cell's folder: %v", err)
	}
	for _, c := range []struct {
		dir string
		use Use
	}{{cell, Use{Resume: true, Cell: true}}, {filepath.Join(dir, "p", "seed-2"), Use{}}} {
		if err := Check(c.dir, c.use); err != nil {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
	if _, err := Claim(dir, Use{}); err == nil || !strings.Contains(err.Error(), "--force to replace it") {
		t.Errorf("a run in a sweep's folder: %v", err)
	}
	if _, err := Claim(dir, Use{Force: true}); err != nil || there(cell) || there(dir, configs.PlanFile) {
		t.Errorf("a run in place of a sweep: %v", err)
	}
}

// Two processes do not work in one folder. When the first has ended, the second may.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "run")
	release, err := Claim(dir, Use{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(dir, Use{Resume: true}); !errors.As(err, new(Occupied)) {
		t.Errorf("a second one got the folder: %v", err)
	}
	release()
	if release, err = Claim(dir, Use{Resume: true}); err != nil {
		t.Fatal(err)
	}
	release()
}

// Remove removes nothing if a process works on one of the runs or on a sweep that contains one.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	single, cell := filepath.Join(dir, "run"), filepath.Join(dir, "sweep", "a", "seed-1")
	filetest.Folder(t, single)
	filetest.Folder(t, cell)
	sweep := filepath.Join(dir, "sweep")
	filetest.Write(t, filepath.Join(sweep, configs.PlanFile), "{}")
	for _, at := range []string{single, cell, sweep} {
		release, err := lock(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := Remove([]string{single, cell}); !errors.As(err, new(Occupied)) || !there(dir, "run") ||
			!there(cell, ".") {
			t.Errorf("with %s locked: %v", at, err)
		}
		release()
	}
	if err := Remove([]string{single, cell}); err != nil || there(dir, "run") || there(cell, ".") || !there(dir,
		"sweep") {
		t.Errorf("removed: %v", err)
	}
}

// Check writes nothing, and finds a file in place of a folder.
func TestCheckWritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Check(filepath.Join(dir, "a", "b"), Use{}); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
	filetest.Write(t, filepath.Join(dir, "file"), "")
	for _, out := range []string{"file", "file/run", "file/a/b"} {
		if err := Check(filepath.Join(dir, out), Use{}); err == nil || !strings.Contains(err.Error(), "is a file") {
			t.Errorf("%s: %v", out, err)
		}
	}
}

// Each call of the program has an entry; a killed call has no duration. Secrets are left out. Time is virtual.
func TestProvenance(t *testing.T) {
	synctest.Test(t, provenance)
}

func provenance(t *testing.T) {
	dir := t.TempDir()
	ctx := WithCommandLine(context.Background(), []string{"promptfed", "run", "x.yaml", "--token", "abc",
		"--token=abc", "--cluster", "nats://user:abc@host:1,nats://host:2"})
	conf := experiment.Defaults()
	conf.Seed = 5
	task := &experiment.Task{Data: &experiment.Data{Digest: "d"}, Info: experiment.DataInfo{Set: "synthetic"},
		Protocol: &experiment.Protocol{Config: conf}, Backbones: &experiment.Backbones{}, Runtime: conf.Runtime}
	clock := &Clock{Start: time.Now().Add(-2 * time.Second)}
	if _, err := Begin(ctx, dir, conf, task, &Clock{Start: time.Now()}); err != nil { // killed
		t.Fatal(err)
	}
	end, err := Begin(ctx, dir, conf, task, clock)
	if err != nil {
		t.Fatal(err)
	}
	clock.Ended(FolderPart)
	clock.Start = clock.Start.Add(-time.Hour) // later times do not count
	clock.Ended(FolderPart)
	clock.Start = clock.Start.Add(time.Hour)
	if err := end(nil); err != nil {
		t.Fatal(err)
	}
	b := filetest.Read(t, dir, ProvenanceFile)
	var p Provenance
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Calls) != 2 || p.Calls[0].Seconds != nil || p.Calls[0].Finished || !p.Calls[1].Finished ||
		*p.Calls[1].Seconds != 2 || p.Seeds["seed"] != 5 || p.Data.Digest != "d" ||
		p.Calls[1].Commit == "" || p.Calls[1].Version == "" || p.Calls[0].Beginning != nil ||
		len(p.Calls[1].Beginning) != 1 || p.Calls[1].Beginning[FolderPart] != 2 {
		t.Errorf("%s", b)
	}
	want := []string{"promptfed", "run", "x.yaml", "--token", "...", "--token=...", "--cluster",
		"nats://user:...@host:1,nats://host:2"}
	if strings.Contains(string(b), "abc") || !slices.Equal(p.Calls[0].Command, want) {
		t.Errorf("command %q", p.Calls[0].Command)
	}
}

// A shell reads the line as the command line of the program, with --resume in place of --force.
func TestCommandWith(t *testing.T) {
	t.Setenv("PROMPTFED_TRAIN_LR", "0.5 # it's")
	t.Setenv("PROMPTFED_TOKEN", "secret")
	words := []string{"echo", "run", "a b.yaml", "--set", "options={tokens: [1, 2]}", "it's", "$HOME", "", "--force"}
	line := CommandWith(WithCommandLine(context.Background(), words), "--resume")
	if strings.Contains(line, "secret") || strings.Contains(line, "--force") {
		t.Errorf("%s", line)
	}
	c := exec.Command("sh", "-c", strings.Replace(line, " echo ", " "+os.Args[0]+" -test.run=^TestPrints$ -- ", 1))
	c.Env = append(os.Environ(), "PROMPTFED_TEST_PRINT=1", "PROMPTFED_TRAIN_LR=")
	out, err := c.CombinedOutput()
	want := "0.5 # it's|run|a b.yaml|--set|options={tokens: [1, 2]}|it's|$HOME||--resume"
	if got, _, _ := strings.Cut(string(out), "\n"); err != nil || got != want {
		t.Errorf("%v: %s\nread back as\n%s\nwant\n%s", err, line, got, want)
	}
}

// TestPrints is the program that the shell of TestCommandWith starts.
func TestPrints(t *testing.T) {
	if os.Getenv("PROMPTFED_TEST_PRINT") == "" {
		return
	}
	i := slices.Index(os.Args, "--")
	os.Stdout.WriteString(strings.Join(append([]string{os.Getenv("PROMPTFED_TRAIN_LR")}, os.Args[i+1:]...), "|") + "\n")
}
