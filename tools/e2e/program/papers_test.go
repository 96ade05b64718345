package program

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/goldentest"
)

// papers are the files of configs/papers, one for each table and figure: sweeps, and tables of data-set sizes.
func papers(t *testing.T) (sweeps, counts []string) {
	t.Helper()
	files, err := filepath.Glob("../../../configs/papers/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in configs/papers: %v", err)
	}
	for _, path := range files {
		switch is, err := configs.HasSection(path, "counts"); {
		case err != nil:
			t.Fatal(err)
		case is:
			counts = append(counts, path)
		default:
			sweeps = append(sweeps, path)
		}
	}
	return sweeps, counts
}

// forms caches the results of bothForms for several tests.
var forms = map[string][2]*configs.Sweep{}

// bothForms loads a sweep and its small form. Tests must not change them.
func bothForms(t *testing.T, path string) (plain, small *configs.Sweep) {
	t.Helper()
	if both, ok := forms[path]; ok {
		return both[0], both[1]
	}
	for _, form := range []struct {
		to    **configs.Sweep
		smoke bool
	}{{&plain, false}, {&small, true}} {
		s, err := configs.LoadSweep(path, configs.SweepOptions{Smoke: form.smoke})
		goldentest.NoError(t, err)
		*form.to = s
	}
	forms[path] = [2]*configs.Sweep{plain, small}
	return plain, small
}

// Every file of a paper is a sweep in both of its forms, and its card names what it reproduces. The small form needs no
// data, and only backbones in the program.
func TestPapers(t *testing.T) {
	sweeps, _ := papers(t)
	for _, path := range sweeps {
		plain, small := bothForms(t, path)
		c := plain.Card
		switch {
		case c == nil:
			t.Errorf("%s has no card", path)
			continue
		case c.Paper == "" || c.Item == "" || c.Title == "":
			t.Errorf("%s: card.paper %q, card.item %q, card.title %q; none may be empty", path, c.Paper, c.Item,
				c.Title)
		case c.Numbers.Values.Empty() == (c.NoNumbers == ""):
			t.Errorf("%s: card.numbers, or card.no_numbers with the reason, is expected", path)
		case (c.Views.Why == "") != (c.Metric == "seconds" || c.Metric == "bytes"):
			t.Errorf("%s: card.views says which evaluation accuracies are, and is left out where there are none", path)
		}
		paper, item := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".yaml")
		if want := paper + "-" + item; plain.Name != want {
			t.Errorf("%s: name is %s, want %s, so that folders of sweeps stay apart", path, plain.Name, want)
		}
		if got := strings.ReplaceAll(strings.ToLower(c.Item), " ", "-"); got != item {
			t.Errorf("%s: card.item is %s", path, c.Item)
		}
		if len(small.Cells) > 40 {
			t.Errorf("%s: the small form has %d cells; a minute is enough for 40", path, len(small.Cells))
		}
		for _, cell := range small.Cells {
			conf := cell.Config
			for _, set := range []string{conf.Data.Set, conf.Synthetic.Set} {
				if set != "synthetic" && set != "" {
					t.Errorf("%s: cell %s of the small form reads set %s", path, cell.Folder, set)
				}
			}
			for _, b := range conf.Backbones {
				if !strings.HasPrefix(b, "tiny-") {
					t.Errorf("%s: cell %s of the small form runs on %s", path, cell.Folder, b)
				}
			}
		}
	}
}

// Every run of FedPHA and SDFed in the file of a paper names its projector. Beside other methods both projectors run,
// with their own labels, and printed numbers belong to the paper's projector.
func TestPapersRunBothProjectors(t *testing.T) {
	sweeps, _ := papers(t)
	for _, path := range sweeps {
		s, _ := bothForms(t, path)
		labels, others := map[any]map[string]string{}, false // a cell of each projector
		for _, cell := range s.Cells {
			if m := cell.Config.Method; m != "fedpha" && m != "sdfed" && m != "fedpr" {
				others = true
				continue
			}
			projector := cell.Config.Options["projector"]
			if projector == nil {
				t.Fatalf("%s: cell %s does not name its projector", path, cell.Folder)
			}
			labels[projector] = cell.Labels
			if _, _, _, printed := s.Card.Number(cell.Labels); printed && projector == "exact-null" {
				t.Errorf("%s: cell %s has a printed number, but not the paper's projector", path, cell.Folder)
			}
		}
		if others && len(labels) > 0 && (len(labels) != 2 || labels["exact-null"] == nil) {
			t.Errorf("%s: methods with projectors %v; want the paper's and exact-null", path, labels)
		}
	}
}

// paperSubject are keys that a file of a paper sets and no paper prints: names, folders, the methods compared.
var paperSubject = []string{"name", "seed", "method", "with", "data.root", "synthetic.root"}

// Where a file of a paper leaves the defaults of the program, its card says why: the paper prints the value
// (card.states), a note names the key (card.differs), or the sweep varies it. With -v the test lists all these keys.
func TestPapersNameTheirSettings(t *testing.T) {
	sweeps, _ := papers(t)
	for _, path := range sweeps {
		s, _ := bothForms(t, path)
		set := map[string][]string{} // key: its values
		for _, cell := range s.Cells {
			if cell.Seed != s.Seeds[0] {
				continue
			}
			for key, value := range changedKeys(t, cell.Config) {
				if !slices.Contains(set[key], value) {
					set[key] = append(set[key], value)
				}
			}
		}
		noted := map[string]bool{}
		for _, d := range s.Card.Differs {
			for _, key := range d.Keys {
				noted[key] = true
				checkKey(t, path, key)
			}
		}
		for _, key := range s.Card.States {
			checkKey(t, path, key)
			if noted[key] {
				t.Errorf("%s: card.states has %s, which a note names too", path, key)
			}
		}
		var listed strings.Builder
		for _, key := range slices.Sorted(maps.Keys(set)) {
			by := "the paper"
			switch {
			case slices.Contains(paperSubject, key):
				continue
			case noted[key]:
				by = "a note"
			case slices.Contains(s.Card.States, key):
			case slices.ContainsFunc(s.Axes, func(a configs.Axis) bool { return varies(a, key) }):
				by = "an axis"
			default:
				t.Errorf("%s: %s is %v, not the default: name it in card.states if the paper prints it, else in a "+
					"note of card.differs", path, key, set[key])
			}
			fmt.Fprintf(&listed, "\n  %-30s %-10s %.80s", key, by, strings.Join(set[key], " | "))
		}
		t.Logf("%s%s", path, listed.String())
	}
}

// varies reports whether all points of an axis set the key and no other.
func varies(a configs.Axis, key string) bool {
	return !slices.ContainsFunc(a.Points, func(p configs.PointSection) bool {
		return len(p.Set) != 1 || p.Set[key] == nil
	})
}

// defaults are the values of the default configuration by key.
var defaults = configtags.Flatten(experiment.Defaults())

// changedKeys returns the keys of a configuration that are not the default, with their values. Options of methods and
// wrappers are options.NAME.
func changedKeys(t *testing.T, c experiment.Config) map[string]string {
	t.Helper()
	out := map[string]string{}
	for key, value := range configtags.Flatten(c) {
		if was, is := fmt.Sprint(defaults[key]), fmt.Sprint(value); was != is && key != "options" {
			out[key] = is
		}
	}
	plain, err := methods.Resolve(c.Method, c.With, nil)
	goldentest.NoError(t, err)
	set, err := methods.Resolve(c.Method, c.With, c.Options)
	goldentest.NoError(t, err)
	addOptions(out, plain.Options, set.Options)
	return out
}

func addOptions(out map[string]string, d, c map[string]any) {
	for name, value := range c {
		if below, ok := value.(map[string]any); ok {
			plain, _ := d[name].(map[string]any)
			addOptions(out, plain, below)
		} else if was, is := fmt.Sprint(d[name]), fmt.Sprint(value); was != is {
			out["options."+name] = is
		}
	}
}

// checkKey fails for a key of a note that neither configurations nor methods have.
func checkKey(t *testing.T, path, key string) {
	t.Helper()
	if name, ok := strings.CutPrefix(key, "options."); ok {
		if !slices.ContainsFunc(methods.Table(), func(d layer.Def) bool {
			return slices.Contains(d.OptionNames(), name)
		}) {
			t.Errorf("%s: the card names %s, which no method has", path, key)
		}
		return
	}
	if _, ok := defaults[key]; !ok {
		t.Errorf("%s: the card names %s, which no configuration has", path, key)
	}
}

// Every table and figure with results or sizes of data sets has a file, and there are no other files: FedPHA's Table 5
// and SDFed's Table 8 list symbols, SDFed's Table 9 is in its Table 4.
func TestEveryTableAndFigureHasAFile(t *testing.T) {
	sweeps, counts := papers(t)
	all := slices.Sorted(slices.Values(append(sweeps, counts...)))
	for paper, items := range map[string]string{
		"fedpha": "figure-3 figure-4 figure-5 figure-6 figure-7 figure-8 figure-9 section-4.1 table-1 table-2 " +
			"table-3 table-4 table-6 table-7 table-8",
		"sdfed": "figure-3 figure-4 figure-5 figure-6 table-1 table-2 table-3 table-4 table-5 table-6 table-7",
		"fedappr": "figure-1 figure-2 figure-4 figure-s1 figure-s2 table-1 table-2 table-s1 table-s2 table-s3 " +
			"table-s4 table-s5 table-s6",
		"pfeddc": "figure-2 figure-3 table-1 table-2 table-3 table-4 table-5 table-6",
		"ggtpc":  "figure-1 table-1 table-2 table-3 table-4 table-5 table-6",
	} {
		var got []string
		for _, path := range all {
			if filepath.Base(filepath.Dir(path)) == paper {
				got = append(got, strings.TrimSuffix(filepath.Base(path), ".yaml"))
			}
		}
		if is := strings.Join(got, " "); is != items {
			t.Errorf("configs/papers/%s has %s\nwant %s", paper, is, items)
		}
	}
}

// The small form of the smallest table of each paper runs to its end; `make smoke` runs all of them, and
// TestReproduceWithRandomWeights the first table of each paper.
func TestSmokeOfPapers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	smallest := map[string]string{} // by paper
	sweeps, _ := papers(t)
	for _, path := range sweeps {
		if !strings.HasPrefix(filepath.Base(path), "table") {
			continue
		}
		_, small := bothForms(t, path)
		paper := filepath.Dir(path)
		if there := smallest[paper]; there == "" || len(small.Cells) < len(forms[there][1].Cells) {
			smallest[paper] = path
		}
	}
	t.Parallel()
	for _, path := range smallest {
		out := smoke(t, path)
		for _, f := range cells(t, out) {
			if _, err := os.Stat(filepath.Join(out, f, "summary.json")); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}
