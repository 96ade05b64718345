package program

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
)

// Reports average runs in neighbouring folders only if they are one experiment. Another experiment in their folder is
// an error that names the different keys. In another folder it becomes a row of its own, named by the differences.
// --force replaces all seeds of a folder.
func TestSeedsOfOneExperiment(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	config, out, other := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "run"), filepath.Join(dir, "other")
	short := []string{"run", config, "--set", "train.rounds=1", "--set", "method=promptfl"}
	with := func(args ...string) []string { return append(append([]string{}, short...), args...) }
	mustRun(t, with("--out", out, "--seeds", "1,2")...)
	for _, c := range []struct{ set, says string }{
		{"method=fedpgp", "method is promptfl there, fedpgp now"},
		{"train.lr=5", "train.lr is 0.01 there, 5 now"},
		{"partition.clients=2", "partition.clients is 4 there, 2 now"},
		{"data.generator.train=7", "data is digest "},
	} {
		_, text, code := call(with("--out", out, "--seeds", "3", "--set", c.set)...)
		if code == 0 || !strings.Contains(text, c.says) || strings.Count(strings.TrimSpace(text), "\n") > 9 {
			t.Errorf("%s: exit %d: %s", c.set, code, text)
		}
	}
	mustRun(t, with("--out", out, "--seeds", "3")...)
	mustRun(t, with("--out", other, "--seeds", "4", "--set", "method=fedpgp")...)
	mustRun(t, with("--out", filepath.Join(dir, "same"), "--seeds", "5", "--set", "runtime.workers=2",
		"--set", "name=x")...)

	report := filepath.Join(dir, "report")
	text := mustRun(t, "report", out, other, filepath.Join(dir, "same"), "--out", report)
	if !strings.Contains(text, "small, method=promptfl") || !strings.Contains(text, "small, method=fedpgp") {
		t.Errorf("rows are not named by what differs:\n%s", text)
	}
	var j results.JSON
	goldentest.ReadJSON(t, filepath.Join(report, "report.json"), &j)
	seeds := map[string][]uint64{}
	for _, g := range j.Groups {
		seeds[g.Method] = g.Metrics["last"].Seeds
		if len(g.Experiment) != 32 {
			t.Errorf("the experiment of %s is %q", g.Name, g.Experiment)
		}
	}
	if len(j.Groups) != 2 || len(seeds["promptfl"]) != 4 || len(seeds["fedpgp"]) != 1 {
		t.Errorf("groups of seeds %v", seeds)
	}

	// All seeds of a folder together may be started over as another experiment, and resumed with more rounds.
	mustRun(t, with("--out", out, "--seeds", "1-3", "--force", "--set", "train.lr=5")...)
	mustRun(t, with("--out", out, "--seeds", "1-3", "--resume", "--set", "train.lr=5", "--set", "train.rounds=2")...)
	_, said, code := call(with("--out", out, "--seeds", "1-3", "--resume", "--set", "train.lr=5")...)
	if code == 0 || !strings.Contains(said, "has 2 finished rounds, but train.rounds is 1") {
		t.Errorf("fewer rounds than done: exit %d: %s", code, said)
	}
	mustRun(t, with("--out", out, "--seeds", "2,4", "--force", "--set", "method=fedpgp")...)
	left, err := filepath.Glob(filepath.Join(out, "seed-*"))
	if err != nil || len(left) != 2 || left[1] != filepath.Join(out, "seed-4") {
		t.Errorf("after --force for seeds 2 and 4: %v, %v", left, err)
	}
}
