package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/runfolder"
)

// A report removes what killed reports left a day before.
func TestSweepsReports(t *testing.T) {
	dir, then := t.TempDir(), time.Now().Add(-25*time.Hour)
	left := []string{filepath.Join(dir, ".tables.tex.1.tmp"), filepath.Join(dir, "plots", ".cost.svg.1.tmp")}
	for _, path := range left {
		filetest.Write(t, path, "")
		goldentest.NoError(t, os.Chtimes(path, then, then))
	}
	_, err := (&Report{folder: dir}).Write(t.Context())
	goldentest.NoError(t, err)
	if slices.ContainsFunc(left, func(path string) bool { _, err := os.Stat(path); return err == nil }) {
		t.Errorf("some of %v are left", left)
	}
}

// TestOneColourInFigures: figures of a report colour a method as the page does, by its place in the sorted list, and
// nothing else has the colour of a method.
func TestOneColourInFigures(t *testing.T) {
	v := contested(t, 2)
	slices.Reverse(v.groups) // B is the first
	v.draw(t.Context(), nil)
	want := map[string]string{"accuracy-global": "A", "accuracy-personal": "AB", "clients-global": "A",
		"clients-personal": "AB", "significance-global": "", "significance-personal": ""}
	for _, f := range v.figures {
		svg, err := f.drawn.SVG()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i, c := range figures.LineColours[0] {
			if strings.Contains(string(svg), strings.ToUpper(c)) {
				got += string(rune('A' + i))
			}
		}
		if shown, ok := want[f.file]; ok && got != shown {
			t.Errorf("%s has the colours of %q, want %q", f.file, got, shown)
		}
		delete(want, f.file)
	}
	delete(want, "significance-global") // nothing to compare
	if len(want) > 0 {
		t.Errorf("no figures %v", want)
	}
	if d, err := v.terms(configs.Figure{}, v.metric); err != nil || d.(figures.Curves).Colours == nil {
		t.Errorf("terms have the colours of methods: %v", err)
	}
}

// titled returns a report on sweeps in some folders, each of two methods with two seeds, below a folder.
func titled(root string, sweeps ...string) *Report {
	r := &Report{Results: &results.Results{}, folder: root}
	for _, dir := range sweeps {
		plan := &results.Plan{Plan: configs.Plan{Name: "grid"}, Dir: filepath.Join(root, dir)}
		for _, m := range []string{"B", "A"} {
			g := &results.Group{Name: m, Plan: plan, Labels: map[string]string{"method": m}}
			for seed := range uint64(2) {
				g.Runs = append(g.Runs, &results.Run{Seed: seed + 1, State: results.Done,
					Config: "backbones: [b16, b32]\ndata: {set: pacs}\npartition: {kind: iid, clients: 8}\n" +
						"train: {rounds: 30, lr: 0.01}\n"})
			}
			r.Groups = append(r.Groups, g)
		}
		r.Plans = append(r.Plans, plan)
	}
	return r
}

// TestTitle: a title names experiment, axes and data, a subtitle the rest, whatever the folder is called.
func TestTitle(t *testing.T) {
	title, subtitle := titled("/x", "one").title()
	if title != "grid on pacs" || subtitle != "4 runs done · 2 methods · 8 clients · b16, b32 · 30 rounds · "+
		"partition iid · learning rate 0.01 · 2 seeds" {
		t.Errorf("%q, %q", title, subtitle)
	}
	if again, same := titled("/y", "other").title(); again != title || same != subtitle {
		t.Errorf("in another folder: %q, %q", again, same)
	}
	two := titled("/x", "one", "two")
	two.Plans[0].Name = "other"
	if title, _ := two.title(); title != "other, grid on pacs" {
		t.Errorf("two sweeps: %q", title)
	}
	if got := series([]string{"a", "b", "c"}) + series([]string{"a", "b"}) + series([]string{"a"}); got !=
		"a, b and ca and ba" {
		t.Errorf("words in series: %q", got)
	}
	small := titled("/x", "one")
	small.Plans[0].Smoke, small.Plans[0].Axes = true, []results.Axis{{Name: "method", Labels: []string{"A", "B"}},
		{Name: "lr", Labels: []string{"0.01"}}}
	if title, _ := small.title(); title != "grid (small form) by method on pacs" {
		t.Errorf("a small form: %q", title)
	}
	mixed := titled("/x", "one", "two")
	mixed.Plans = mixed.Plans[:1]
	mixed.Groups[2].Plan, mixed.Groups[3].Plan = nil, nil
	if title, _ := mixed.title(); title != "grid, 2 more experiments on pacs" { // of two seeds each
		t.Errorf("a sweep and runs beside it: %q", title)
	}
	single := titled("/x", "one")
	single.Plans, single.Groups = nil, single.Groups[:1]
	single.Groups[0].Plan = nil
	if title, _ := single.title(); title != "B on pacs" {
		t.Errorf("a run: %q", title)
	}
}

// TestDefinitionsOnce: columns of two tables are explained once, and so is what both captions say. What a reader of the
// numbers needs, and what one table says alone, is in captions.
func TestDefinitionsOnce(t *testing.T) {
	r := titled("/x", "one")
	table := func(own string) *tables.Table {
		return &tables.Table{Title: "T", Metric: "last", Definitions: [][2]string{{"f1", "macro-F1"}},
			Caption: []string{"f1: macro-F1.", "Both say this.", "A fact.", own}, Facts: []string{"A fact."}}
	}
	r.main, r.more = []*tables.Table{table("One.")}, []*tables.Table{table("Two.")}
	var p page.Report
	r.tables(&p)
	if fmt.Sprint(p.Definitions, p.Reading) != "[{f1 macro-F1}] [Both say this.]" || len(p.Tables) != 2 ||
		p.Tables[0].Caption != "A fact. One." || p.Tables[1].Caption != "Two." {
		t.Errorf("%+v", p)
	}
}

// TestDates: a served page names the day on which its runs began, or the first and the last day. A report has no dates.
func TestDates(t *testing.T) {
	r := titled(t.TempDir(), "one")
	runs := slices.Collect(results.Runs(r.Groups))[:2]
	if got := dates(runs); got != "" {
		t.Errorf("runs without provenance: %q", got)
	}
	for i, want := range []string{"began on 24 November 2026", "began on 24 November 2026 to 25 November 2026"} {
		runs[i].Dir = t.TempDir()
		text := fmt.Sprintf(`{"calls": [{"start": "2026-11-%dT12:00:00Z"}]}`, 24+i)
		filetest.Write(t, filepath.Join(runs[i].Dir, runfolder.ProvenanceFile), text)
		if got := dates(runs); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if title, subtitle := r.title(); strings.Contains(title+subtitle, "2026") {
		t.Errorf("a report has a date: %q", title+subtitle)
	}
}

// TestTableTitles: with several sweeps, titles of tables name the numbers, the axes and the sweep.
func TestTableTitles(t *testing.T) {
	r := titled("/x", "one", "two")
	table := func(title, axis string) *tables.Table {
		return &tables.Table{Title: title, Metric: "last", RowAxes: []string{axis}}
	}
	r.main = []*tables.Table{table("grid", "lr"), table(looseRuns, "run")}
	r.more = []*tables.Table{table("All metrics: grid", "lr")}
	var p page.Report
	r.tables(&p)
	got := convert.Slice(p.Tables, func(s page.Table) string { return s.Title })
	want := "Accuracy (%) by lr: grid | Accuracy (%) by run | All metrics: grid"
	if s := strings.Join(got, " | "); s != want {
		t.Errorf("titles are %s, want %s", s, want)
	}
}

// TestServed: a served page names all its folders. Metrics that count have no unit beside their title.
func TestServed(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, name := range []string{"one", "two"} {
		dirs = append(dirs, filepath.Join(root, name))
		for file, text := range map[string]string{"config.yaml": "name: " + name + "\nmethod: promptfl\n",
			"rounds.jsonl": `{"format":2,"round":0,"loss":1,"parameters_up":3,"parameters_down":4,"seconds":1}` +
				"\n"} {
			filetest.Write(t, filepath.Join(root, name, file), text)
		}
	}
	live := Live(dirs)
	p, err := live.Report()
	if err != nil || !strings.HasSuffix(p.Title, " in one, two") {
		t.Errorf("%q, %v", p.Title, err)
	}
	if again, err := live.Report(); err != nil || again.Title != p.Title || again.Subtitle != p.Subtitle {
		t.Errorf("without a change: %q, %q, %v", again.Title, again.Subtitle, err)
	}
	if err := os.Remove(filepath.Join(dirs[1], "config.yaml")); err != nil {
		t.Fatal(err)
	}
	if fewer, err := live.Report(); err != nil || !strings.HasPrefix(fewer.Subtitle, "1 run ") {
		t.Errorf("with a run less: %q, %q, %v", fewer.Title, fewer.Subtitle, err)
	}
	i := slices.IndexFunc(p.Metrics, func(m page.Metric) bool { return strings.HasPrefix(m.Title, "parameters sent") })
	if i < 0 || p.Metrics[i].Unit != "" {
		t.Errorf("metrics are %+v", p.Metrics)
	}
}
