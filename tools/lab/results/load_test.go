package results

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/federation/experiment/identity"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// put writes files below a folder: name, text, name, text.
func put(t *testing.T, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		filetest.Write(t, filepath.Join(dir, files[i]), files[i+1])
	}
}

// lines returns rounds with the given accuracies of two clients.
func lines(accuracies ...[2]float64) string {
	var b strings.Builder
	for i, a := range accuracies {
		own := map[string]any{"accuracy": (a[0] + a[1]) / 2, "per_client": a[:]}
		line, _ := json.Marshal(map[string]any{"format": 2, "round": i, "loss": 1, "tested": true, "view": "personal",
			"accuracy": own["accuracy"], "per_client": a[:], "evaluations": map[string]any{"personal": own},
			"bytes_up": 10, "bytes_down": 20, "seconds": 2})
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

func config(name, method string, seed, rounds int) string {
	return fmt.Sprintf("name: %s\nmethod: %s\nwith: [fedprox]\nseed: %d\ntrain: {rounds: %d}\n", name, method, seed,
		rounds)
}

// finished writes the folder of a finished run.
func finished(t *testing.T, dir, name, method string, seed int, accuracies ...[2]float64) {
	t.Helper()
	put(t, dir, "config.yaml", config(name, method, seed, len(accuracies)), "rounds.jsonl", lines(accuracies...),
		"summary.json", fmt.Sprintf(`{"format":2,"name":%q,"rounds":%d}`, name, len(accuracies)))
	identify(t, dir, seed, "method", method, "train.rounds", fmt.Sprint(len(accuracies)))
}

// identify writes the experiment's identity of a run folder, with the given keys and values.
func identify(t *testing.T, dir string, seed int, values ...string) {
	t.Helper()
	id := identity.Identity{Version: 1, Seed: uint64(seed), Values: map[string]string{"numerics": "1"}}
	for i := 0; i < len(values); i += 2 {
		id.Values[values[i]] = values[i+1]
	}
	goldentest.NoError(t, id.Write(dir))
}

func load(t *testing.T, dirs ...string) *Results {
	t.Helper()
	r, err := Load(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLoadLooseRuns(t *testing.T) {
	dir := t.TempDir()
	finished(t, filepath.Join(dir, "b", "seed-10"), "b", "fedpha", 10, [2]float64{.1, .3})
	finished(t, filepath.Join(dir, "b", "seed-2"), "b", "fedpha", 2, [2]float64{.2, .4})
	finished(t, filepath.Join(dir, "a"), "a", "promptfl", 1, [2]float64{.5, .5})
	finished(t, filepath.Join(dir, "deep", "x"), "same", "promptfl", 1, [2]float64{.5, .5})
	finished(t, filepath.Join(dir, "deep", "y"), "same", "promptfl", 1, [2]float64{.5, .5})
	identify(t, filepath.Join(dir, "deep", "x"), 1, "method", "promptfl", "train.lr", "1")
	identify(t, filepath.Join(dir, "deep", "y"), 1, "method", "promptfl", "train.lr", "2")
	finished(t, filepath.Join(dir, "a", "in"), "in", "promptfl", 2, [2]float64{.5, .5})
	finished(t, filepath.Join(dir, "a", "plots"), "plots", "promptfl", 3, [2]float64{.5, .5})
	identify(t, filepath.Join(dir, "a", "in"), 2, "train.lr", "3")
	put(t, dir, "no-run/config.yaml", "name: c", "no-run/notes.txt", "", "a/checkpoint/rounds.jsonl", "")
	r := load(t, dir, dir+"/a")
	var names []string
	for _, g := range r.Groups {
		names = append(names, g.Name)
		if g.Labels[RunAxis] != g.Name || g.Plan != nil {
			t.Errorf("%s has labels %v", g.Name, g.Labels)
		}
	}
	if got := strings.Join(names, "; "); got != "a; in; b; same, train.lr=1; same, train.lr=2" {
		t.Errorf("groups %s", got)
	}
	b := r.Groups[2]
	if len(b.Runs) != 2 || b.Runs[0].Seed != 2 || b.Runs[1].Seed != 10 || b.Method() != "fedpha + fedprox" {
		t.Errorf("group b: %+v", b)
	}
	if len(r.Notes) > 0 {
		t.Errorf("notes %q", r.Notes)
	}
}

// A run that starts has an identity and no rounds. A client's folder of promptfed join has only a configuration.
func TestLoadStartingRun(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "run/config.yaml", config("run", "coop", 3, 9), "join-0/config.yaml", config("join-0", "coop", 3, 9))
	identify(t, filepath.Join(dir, "run"), 3)
	all := slices.Collect(Runs(load(t, dir).Groups))
	if len(all) != 1 || all[0].Name != "run" || all[0].State != Unfinished || all[0].Reason != "0 of 9 rounds so far" {
		t.Errorf("%d runs: %+v", len(all), all[0])
	}
}

const plan = `{"name":"grid","axes":[{"name":"method","labels":["P","F"]},{"name":"rho","labels":["0.3","0.8"]}],
"seeds":[1,2],"cells":[
{"folder":"p/3/seed-1","labels":{"method":"P","rho":"0.3"},"seed":1},
{"folder":"p/3/seed-2","labels":{"method":"P","rho":"0.3"},"seed":2},
{"folder":"f/8/seed-1","labels":{"method":"F","rho":"0.8"},"seed":1},
{"folder":"f/8/seed-2","labels":{"method":"F","rho":"0.8"},"seed":2},
{"folder":"f/3/seed-1","labels":{"method":"F","rho":"0.3"},"seed":1}],
"card":{"paper":"X","item":"Table 1","rows":["method"],"columns":["rho"],
"numbers":{"by":["method","rho"],"values":{"P":{"0.3":[91.2,0.3]}}}}}`

// A method of a file is called like the file, before its wrappers.
func TestMethodOfAFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "experiment.json", "", "config.yaml", config("own", "onnx", 1, 2)+"options: {file: \""+
		string(layer.EmbedFile("FedProx.onnx", []byte("graph")))+"\"}\n")
	r := load(t, dir)
	if method := r.Groups[0].Runs[0].Method; method != "FedProx + fedprox" {
		t.Errorf("%q", method)
	}
	if strings.Count(strings.Join(r.Notes, "\n"), "experiment.json") != 1 { // an empty file
		t.Errorf("%q", r.Notes)
	}
}

func TestLoadSweep(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "sweep.json", plan)
	finished(t, filepath.Join(dir, "p", "3", "seed-1"), "p", "promptfl", 1, [2]float64{.5, .7})
	finished(t, filepath.Join(dir, "f", "8", "seed-1"), "f", "fedpha", 1, [2]float64{.5, .7})
	finished(t, filepath.Join(dir, "old", "seed-1"), "old", "fedpha", 1, [2]float64{.5, .7})
	put(t, dir, "p/3/seed-2/error.txt", "no such\nset\n", // failed before it became a run
		"f/8/seed-2/config.yaml", config("f", "fedpha", 2, 9), "f/8/seed-2/rounds.jsonl", lines([2]float64{.1, .1})+
			`{"format":2,"round":1,`)
	identify(t, filepath.Join(dir, "f", "8", "seed-2"), 2, "method", "fedpha", "train.rounds", "1")
	r := load(t, dir)
	if len(r.Plans) != 1 || len(r.Of(r.Plans[0])) != 3 || len(r.Of(nil)) != 1 {
		t.Fatalf("%d plans, %d groups", len(r.Plans), len(r.Groups))
	}
	var got []string
	for _, g := range r.Of(r.Plans[0]) {
		for _, run := range g.Runs {
			got = append(got, fmt.Sprintf("%s %d %s: %s", g.Name, run.Seed, run.State, run.Reason))
		}
	}
	want := []string{"P, 0.3 1 done: ", "P, 0.3 2 failed: no such; set", "F, 0.8 1 done: ",
		"F, 0.8 2 unfinished: 1 of 9 rounds so far", "F, 0.3 1 missing: not started"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("runs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "old") {
		t.Errorf("notes %q", r.Notes)
	}
	if mean, std, has, ok := r.Plans[0].Card.Number(map[string]string{"method": "P", "rho": "0.3"}); mean != 91.2 ||
		std != .3 || !has || !ok {
		t.Errorf("the card's number is %v ± %v", mean, std)
	}
	if got := fmt.Sprint(Axes(r.Of(r.Plans[0]))); got != "[{method [P F]} {rho [0.3 0.8]}]" {
		t.Errorf("axes %s", got)
	}
	// A single cell keeps its labels, and the rest of the sweep does not count as missing.
	one := load(t, filepath.Join(dir, "f", "8"))
	if len(one.Groups) != 1 || one.Groups[0].Labels["rho"] != "0.8" || len(one.Groups[0].Runs) != 2 {
		t.Errorf("below a sweep: %+v", one.Groups)
	}
}

// Sweeps of the same axes become one: points of both, seeds of one experiment together, and a point without a result
// gives way to one with it. Other axes and two experiments at one point are errors.
func TestLoadMerged(t *testing.T) {
	root := t.TempDir()
	sweep := func(name, axis string, cells ...string) string { // label, seed, method; no method: not started
		var labels, list []string
		for i := 0; i < len(cells); i += 3 {
			folder := cells[i] + "/seed-" + cells[i+1]
			labels = AppendMissing(labels, cells[i])
			list = append(list, fmt.Sprintf(`{"folder":%q,"labels":{%q:%q},"seed":%s}`, folder, axis, cells[i],
				cells[i+1]))
			if cells[i+2] != "" {
				seed, _ := strconv.Atoi(cells[i+1])
				finished(t, filepath.Join(root, name, folder), name, cells[i+2], seed, [2]float64{.5, .5})
			}
		}
		put(t, filepath.Join(root, name), "sweep.json", fmt.Sprintf(`{"name":%q,"axes":[{"name":%q,"labels":["%s"]}],
			"cells":[%s]}`, name, axis, strings.Join(labels, `","`), strings.Join(list, ",")))
		return filepath.Join(root, name)
	}
	a := sweep("a", "method", "A", "1", "x", "B", "1", "y", "B", "2", "", "C", "1", "")
	b := sweep("b", "method", "B", "1", "y", "B", "2", "y", "C", "1", "z", "A", "3", "")
	one := sweep("one", "method", "D", "1", "w")
	got, err := LoadMerged(a, b, one)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, g := range got.Of(got.Plans[0]) {
		text = append(text, g.Name)
		for _, r := range g.Runs {
			text = append(text, filepath.Base(filepath.Dir(filepath.Dir(r.Dir))), fmt.Sprint(r.Seed))
		}
	}
	if want := "A a 1 B a 1 b 2 C b 1 D one 1"; strings.Join(text, " ") != want || len(got.Plans) != 1 || fmt.Sprint(
		got.Plans[0].Axes) != "[{method [A B C D]}]" {
		t.Errorf("%s, %d sweeps, axes %v, want %s", text, len(got.Plans), got.Plans[0].Axes, want)
	}
	for say, other := range map[string]string{"A of": sweep("other", "method", "A", "1", "v"),
		"axes": sweep("rates", "rate", "A", "1", "x")} {
		if _, err := LoadMerged(a, other); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
	}
}

func TestLoadDamaged(t *testing.T) {
	dir := t.TempDir()
	finished(t, filepath.Join(dir, "short"), "short", "m", 1, [2]float64{.5, .7}, [2]float64{.5, .7})
	put(t, dir, "short/rounds.jsonl", lines([2]float64{.5, .7})+"{]\n")
	finished(t, filepath.Join(dir, "sum"), "sum", "m", 2, [2]float64{.5, .7})
	put(t, dir, "sum/summary.json", `{"format":2,"rounds":"many"}`)
	finished(t, filepath.Join(dir, "conf"), "conf", "m", 3, [2]float64{.5, .7})
	put(t, dir, "conf/config.yaml", "name: kept\nseed: [\n", "sweep.json", "[]")
	if err := os.Truncate(filepath.Join(dir, "sweep.json"), 65<<20); err != nil {
		t.Fatal(err)
	}
	r := load(t, dir)
	states := map[string]State{}
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			states[filepath.Base(run.Dir)] = run.State
		}
	}
	if states["short"] != Failed || states["sum"] != Failed || states["conf"] != Done {
		t.Errorf("states %v", states)
	}
	for _, want := range []string{"sweep.json: it may have at most", "rounds.jsonl: line 2 is not a round",
		"summary.json", "config.yaml"} {
		if !strings.Contains(strings.Join(r.Notes, "\n"), want) {
			t.Errorf("no note says %q: %q", want, r.Notes)
		}
	}
	for _, n := range r.Notes {
		if strings.Contains(n, "\n") {
			t.Errorf("a note of several lines: %q", n)
		}
	}
	for _, c := range []struct{ dir, say string }{
		{filepath.Join(dir, "gone"), "no such folder"}, {filepath.Join(dir, "short", "config.yaml"), "is not a folder"},
		{t.TempDir(), "no runs in"},
	} {
		if _, err := Load(c.dir); err == nil || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(),
			"\n") {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
}

func TestClients(t *testing.T) {
	dir := t.TempDir()
	run := &Run{Dir: dir}
	if c, err := run.Clients(); c != nil || err != nil {
		t.Errorf("without a file: %v, %v", c, err)
	}
	put(t, dir, "clients.json",
		`{"classes":["a","b"],"clients":[{"backbone":"x","domain":"d","train":[3,4],"val":[],"test":[1,0]}]}`)
	if c, err := run.Clients(); err != nil || c.Clients[0].Train[1] != 4 || c.Clients[0].Domain != "d" {
		t.Errorf("%v, %v", c, err)
	}
	for _, text := range []string{`[]`, `{"classes":["a"],"clients":[{"train":[1,2]}]}`,
		`{"classes":["a"],"clients":[{"train":[-1]}]}`} {
		put(t, dir, "clients.json", text)
		if _, err := run.Clients(); err == nil || !strings.Contains(err.Error(), "clients.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// No content of a run folder makes the reader panic, and all accepted numbers are finite.
func FuzzRunFolder(f *testing.F) {
	f.Add([]byte(lines([2]float64{.5, .7})), []byte(config("a", "b", 1, 1)), []byte(`{"format":2,"rounds":1}`),
		[]byte(`{"classes":["a"],"clients":[{"train":[1]}]}`), []byte(plan))
	f.Add([]byte(`{"format":2,"round":0,"tested":true,"per_client":[1],"f1":0.5,"sets":{"new":{"accuracy":1}},`+
		`"per_domain":{"a":1}}`+"\n"), []byte("with: [a]\nseed: -1"), []byte("{}"), []byte("{}"),
		[]byte(`{"card":{"numbers":{"values":{"a":null}}}}`))
	f.Add([]byte(`{"format":2,"round":0,"notes":{"":1}}`+"\n"), []byte(config("a", "b", 1, 1)), []byte("{}"),
		[]byte("{}"), []byte(plan))
	f.Add([]byte("\n\n"), []byte("&a [*a]"), []byte("null"), []byte("null"), []byte("null"))
	f.Fuzz(func(t *testing.T, rounds, config, summary, clients, sweep []byte) {
		dir := t.TempDir()
		put(t, dir, "config.yaml", string(config), "rounds.jsonl", string(rounds), "summary.json", string(summary),
			"clients.json", string(clients), "sweep.json", string(sweep))
		r, err := Load(dir)
		if err != nil {
			return // the plan has other cells
		}
		MainMetrics("last", r.Groups)
		for _, g := range r.Groups {
			for _, name := range []string{"last", "best", "last5", "last10", "global@best", "personal", "weighted",
				"f1", "worst", "domain:a", "domain-std", "set:new", "loss", "bytes", "seconds@last5"} {
				m := metric(t, name)
				if s := g.Stat(m); s.N() > 0 && !(s.Mean() > -1e31 && s.Mean() < 1e31) {
					t.Errorf("%s is %v", name, s.Mean())
				}
				Curves([]*Group{g}, m)
				for _, run := range g.Runs {
					m.PerClient(run)
				}
			}
			for _, run := range g.Runs {
				_, _ = run.Clients()
			}
		}
	})
}

// A warning common to several runs of a grid is one line with their number; other notes stay unchanged and in order.
func TestOncePerWarning(t *testing.T) {
	got := oncePerWarning([]string{"a: warning: x", "a: ended early, y", "b: warning: x", "b: warning: z",
		"c: warning: x", "b: ended early, y"})
	want := []string{"a and 2 more: warning: x", "a: ended early, y", "b: warning: z", "b: ended early, y"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Notes name the clients whose updates a server refused or cut, the first five with a note each.
func TestLoadLimited(t *testing.T) {
	dir := t.TempDir()
	finished(t, dir, "a", "promptfl", 1, [2]float64{.5, .7})
	var list []string
	for k := range 8 {
		list = append(list, fmt.Sprintf(`{"client":%d,"refused":%d,"reason":"two\nlines"}`, k, k+1))
	}
	put(t, dir, "summary.json", fmt.Sprintf(`{"format":2,"name":"a","rounds":1,"limited":[%s]}`,
		strings.Join(list, ",")))
	notes := load(t, dir).Notes
	if len(notes) != 6 || !strings.Contains(notes[4], "client 4: 5 of its replies were refused (two; lines)") ||
		!strings.Contains(notes[5], "3 more clients") {
		t.Errorf("notes %q", notes)
	}
}
