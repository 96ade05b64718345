package results

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/convert"
)

// both returns equal accuracies of both clients in the single round of a run.
func both(x float64) [2]float64 { return [2]float64{x, x} }

func groupNames(r *Results) []string {
	return convert.Slice(r.Groups, func(g *Group) string { return g.Name })
}

// Seeds are averaged within one experiment, in any folders, and only there. Neighbouring folders called seed-N with
// another method, other rounds or another learning rate are not averaged.
func TestOnlyOneExperimentIsAveraged(t *testing.T) {
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	finished(t, at("pacs", "seed-1"), "pacs", "promptfl", 1, both(.5))
	finished(t, at("pacs", "seed-2"), "pacs", "promptfl", 2, both(.7))
	finished(t, at("pacs", "seed-3"), "pacs", "fedpgp", 3, both(.1), both(.1))
	finished(t, at("pacs", "seed-4"), "pacs", "promptfl", 4, both(.9), both(.9))
	finished(t, at("elsewhere"), "pacs", "promptfl", 5, both(.6))
	r := load(t, dir)
	want := []string{"pacs, method=promptfl, train.rounds=1", "pacs, method=fedpgp, train.rounds=2",
		"pacs, method=promptfl, train.rounds=2"}
	got := groupNames(r)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("groups %q\nwant %q", got, want)
	}
	accuracy := metric(t, "last")
	for _, g := range r.Groups {
		if s := g.Stat(accuracy); g.Name == want[1] { // (0.5 + 0.7 + 0.6) / 3
			if !slices.Equal(s.Seeds, []uint64{1, 2, 5}) || s.Mean() < .5999 || s.Mean() > .6001 {
				t.Errorf("%s: seeds %v, mean %v", g.Name, s.Seeds, s.Mean())
			}
		} else if s.N() != 1 {
			t.Errorf("%s: seeds %v", g.Name, s.Seeds)
		}
	}
}

// A second run of one experiment and seed is not a second seed.
func TestCopiesAreNoSeeds(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		finished(t, filepath.Join(dir, name), "pacs", "promptfl", 1, both(.5))
	}
	r := load(t, dir)
	if len(r.Groups) != 2 || r.Groups[0].Name == r.Groups[1].Name || r.Groups[0].Experiment == r.Groups[1].Experiment {
		t.Errorf("groups %q", groupNames(r))
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "no further seed") {
		t.Errorf("notes %q", r.Notes)
	}
}

// Runs without an identity, or with unknown data, are not seeds of one experiment.
func TestUnknownExperimentsStandAlone(t *testing.T) {
	dir := t.TempDir()
	for _, seed := range []string{"seed-1", "seed-2"} {
		at := filepath.Join(dir, "old", seed)
		put(t, at, "config.yaml", config("old", "promptfl", 1, 1), "rounds.jsonl", lines(both(.5)),
			"summary.json", `{"format":2,"rounds":1}`)
	}
	r := load(t, dir)
	if len(r.Groups) != 2 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "2 runs without experiment.json") {
		t.Errorf("groups %q, notes %q", groupNames(r), r.Notes)
	}
	for _, seed := range []int{1, 2} {
		at := filepath.Join(dir, "served", []string{"", "seed-1", "seed-2"}[seed])
		finished(t, at, "served", "promptfl", seed, both(.5))
		put(t, at, "experiment.json", `{"version":1,"seed":1,"values":{"method":"x"},"unknown":["data"]}`)
	}
	if r = load(t, filepath.Join(dir, "served")); len(r.Groups) != 2 {
		t.Errorf("groups %q", groupNames(r))
	}
}

// The seeds of a cell of a sweep are averaged if they belong to one experiment; the note about others names the
// differing keys.
func TestCellsOfOneExperiment(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "sweep.json", `{"name":"grid","axes":[{"name":"method","labels":["P","F"]}],"seeds":[1,2,3],"cells":[
{"folder":"p/1","labels":{"method":"P"},"seed":1},{"folder":"p/2","labels":{"method":"P"},"seed":2},
{"folder":"p/3","labels":{"method":"P"},"seed":3},{"folder":"f/1","labels":{"method":"F"},"seed":1}]}`)
	for i, folder := range []string{"p/1", "p/2", "p/3", "f/1"} {
		finished(t, filepath.Join(dir, folder), "grid", folder[:1], i%3+1, both(.5))
	}
	identify(t, filepath.Join(dir, "p/2"), 2, "method", "p", "train.rounds", "1", "data", "another")
	r := load(t, dir)
	if got := groupNames(r); !slices.Equal(got, []string{"P", "F", "grid"}) {
		t.Fatalf("groups %q", got)
	}
	if g := r.Groups[0]; len(g.Runs) != 2 || g.Runs[1].Seed != 3 || r.Groups[2].Plan != nil {
		t.Errorf("P has %d runs", len(g.Runs))
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "data differ") {
		t.Errorf("notes %q", r.Notes)
	}
}

// A run of another seed in the folder of a cell does not belong to the cell.
func TestCellsOfOneSeed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "sweep.json", `{"name":"grid","axes":[{"name":"method","labels":["P","F"]}],"seeds":[1],"cells":[
{"folder":"p","labels":{"method":"P"},"seed":1},{"folder":"f","labels":{"method":"F"},"seed":1}]}`)
	finished(t, filepath.Join(dir, "p"), "grid", "p", 7, both(.5))
	finished(t, filepath.Join(dir, "f"), "grid", "f", 1, both(.5))
	r := load(t, dir)
	if len(r.Groups) != 3 || r.Groups[0].Runs[0].State != Missing || r.Groups[2].Runs[0].Seed != 7 {
		t.Errorf("groups %q", groupNames(r))
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "holds seed 7") {
		t.Errorf("notes %q", r.Notes)
	}
}

// Sweeps of one point are lists of seeds: several of them stand in one table, whose rows are named by the differences.
// Grids of one name are distinguished by their folders.
func TestSweepsOfOneName(t *testing.T) {
	dir := t.TempDir()
	single := func(folder, method string) {
		put(t, dir, folder+"/sweep.json", `{"name":"pacs","axes":[{"name":"method","labels":["`+method+`"]}],
"seeds":[1],"cells":[{"folder":"c","labels":{"method":"`+method+`"},"seed":1}]}`)
		finished(t, filepath.Join(dir, folder, "c"), method, method, 1, both(.5))
	}
	single("x", "fedotp")
	single("y", "maple")
	r := load(t, dir)
	if got := groupNames(r); len(r.Plans) != 0 || !slices.Equal(got, []string{"pacs, method=fedotp",
		"pacs, method=maple"}) {
		t.Errorf("%d plans, groups %q", len(r.Plans), got)
	}
	if r = load(t, filepath.Join(dir, "x")); len(r.Plans) != 1 || r.Groups[0].Name != "fedotp" {
		t.Errorf("one of them alone: %d plans, groups %q", len(r.Plans), groupNames(r))
	}
	grids := t.TempDir()
	for _, folder := range []string{"a", "b"} {
		put(t, grids, folder+"/sweep.json", `{"name":"pacs","axes":[{"name":"m","labels":["1","2"]}],
"seeds":[1],"cells":[{"folder":"c","labels":{"m":"1"},"seed":1}]}`)
		finished(t, filepath.Join(grids, folder, "c"), "c", "x", 1, both(.5))
	}
	r = load(t, grids)
	if len(r.Plans) != 2 || r.Plans[0].Name != "pacs (a)" || r.Plans[1].Name != "pacs (b)" {
		t.Errorf("plans %+v", r.Plans)
	}
}

// A caption names the differences in execution between averaged runs, and is empty without differences.
func TestExecutions(t *testing.T) {
	dir := t.TempDir()
	for i, version := range []string{"1.30.0", "1.30.1", "1.30.1"} {
		at := filepath.Join(dir, "seed-"+[]string{"1", "2", "3"}[i])
		finished(t, at, "p", "promptfl", i+1, both(.5))
		put(t, at, "provenance.json",
			`{"calls":[{"commit":"abc","numerics":{"onnxruntime":"`+version+`","threads":1}}]}`)
	}
	want := "The runs were executed differently: onnxruntime (1.30.0 in 1 run, 1.30.1 in 2 runs)."
	r := load(t, dir)
	if got := ExecutionDifferences(r.Groups); len(r.Groups) != 1 || got != want {
		t.Errorf("%q", got)
	}
	same := load(t, filepath.Join(dir, "seed-2"), filepath.Join(dir, "seed-3")).Groups
	if got := ExecutionDifferences(same); got != "" {
		t.Errorf("of equal ones: %q", got)
	}
}
