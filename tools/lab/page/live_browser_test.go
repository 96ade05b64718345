package page_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/ui"
)

// TestLive shows a page of one run, which grows and then ends, and a second run that starts. The page follows without
// reloading, and keeps the user's choices.
func TestLive(t *testing.T) {
	b := newTab(t)
	var step atomic.Int64
	whole := sample(20, 4)
	source := ui.Source{
		Version: func() uint64 { return uint64(step.Load()) },
		Report: func() (page.Report, error) {
			r := sample(20, 4)
			r.Live, r.Runs, r.Figures = true, slices.Clone(whole.Runs[:1]), nil
			r.Runs[0].Folder, r.Runs[0].State, r.Runs[0].Planned = "one", "running", 20
			r.Runs[0].Sign, r.Runs[0].Left = "2026-01-02 03:04:05", "3m0s"
			r.Runs[0].Curves = slices.Clone(r.Runs[0].Curves)
			if n := 5 + int(step.Load()); n < 20 {
				for i, c := range r.Runs[0].Curves {
					r.Runs[0].Curves[i].Rounds, r.Runs[0].Curves[i].Values = c.Rounds[:n], c.Values[:n]
				}
			} else {
				r.Runs[0].State, r.Runs[0].Sign, r.Runs[0].Left = "done", "", ""
				r.Runs = append(r.Runs, whole.Runs[3])
				r.Tables[0].Title = "Tables of two runs"
			}
			return complete(r), nil
		},
		Details: func(string) (json.RawMessage, error) {
			return detailed(map[string]any{"log": []string{"round 1: loss 3"}}), nil
		},
	}
	handler := ui.New(source)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go handler.Watch(ctx, 20*time.Millisecond)
	b.do(chromedp.Navigate(served(t, handler)), chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	b.until(`document.getElementById("live").textContent === "live"`)
	b.run(`window.stays = true`)
	b.choose("curves-metric", "loss")
	rounds := func(text string) {
		t.Helper()
		b.until(`[...document.querySelectorAll("#runs-table td")].some((c) => c.textContent === "` + text + `")`)
	}
	rounds("5 of 20")
	rounds("2026-01-02 03:04:05")
	rounds("3m0s")
	b.until(`document.querySelector("#run-log pre").textContent === "round 1: loss 3"`)
	b.do(chromedp.EmulateViewport(800, 300))
	b.click(`[data-at="run-one"]`)
	atRun := `Math.abs(document.getElementById("run").getBoundingClientRect().top) < 100`
	b.until(atRun)
	step.Store(7)
	rounds("12 of 20")
	b.frame()
	if !js[bool](b, atRun) {
		t.Error("the page left the run that was clicked")
	}
	b.until(`document.getElementById("curves-chart").dataset.to === "11"`) // rounds 0 to 11
	step.Store(15)
	rounds("20")
	b.until(`document.querySelectorAll("#runs-table tbody tr").length === 2 &&
		document.querySelector("#results h3").textContent === "Tables of two runs"`)
	if !js[bool](b, `window.stays && document.querySelector("#results-1 thead button") !== null`) {
		t.Error("the page was loaded again, or its new table does not sort")
	}
	if got := js[string](b, `document.getElementById("curves-metric").value + location.hash`); !strings.HasPrefix(got,
		"loss#") || !strings.Contains(got, "metric=loss") {
		t.Errorf("what was chosen became %s", got)
	}
}

// TestRunsTable filters, sorts, groups and hides rows, with numbers of the sample: levels 60 + 4 m + 6 s of method m on
// set s (sample_test.go), and three seeds each.
func TestRunsTable(t *testing.T) {
	b := open(t, sample(20, 4))
	status := func(want string) {
		t.Helper()
		b.until(`document.getElementById("runs-status").textContent === "` + want + `"`)
	}
	status("45 of 45 runs")
	b.focus("#runs-find")
	b.key("method=FedPHA seed=2 oxford")
	status("1 of 45 runs")
	if got := b.texts("#runs-table tbody tr th button"); got != "FedPHA · OxfordPets, seed 2" {
		t.Errorf("found %s", got)
	}
	if got := js[string](b, `document.getElementById("curves-chart").dataset.lines`); got != "1" {
		t.Errorf("%s lines of one run", got)
	}
	b.run(`document.getElementById("runs-find").value = ""`)
	b.focus("#runs-find")
	b.key("accuracy>86") // pFedDC on OxfordPets is near 88; the next, SDFed, is near 84
	status("3 of 45 runs")
	link := js[string](b, "location.href")
	b.find("nothing")
	status("0 of 45 runs")
	b.find("")
	status("45 of 45 runs")

	b.choose("runs-by", "method")
	if got := js[int](b, `document.querySelectorAll("#runs-table tr.total").length`); got != 5 {
		t.Errorf("%d groups of five methods", got)
	}
	b.click(`[data-at="sort-accuracy"]`)
	if got := b.text("#runs-table tr.total th button"); got !=
		"method = pFedDC" {
		t.Errorf("the best group is %q", got)
	}
	b.click("#runs-table tr.total th button")
	if got := js[int](b, `document.querySelectorAll("#runs-table tbody:first-of-type tr").length`); got != 1 {
		t.Errorf("a closed group shows %d lines", got)
	}
	b.click(`#runs-table tr.total input`)
	status("45 of 45 runs, 36 in curves")
	b.choose("curves-lines", "by:method")
	if got := js[string](b, `document.getElementById("curves-chart").dataset.lines`); got != "4" {
		t.Errorf("%s lines of four methods", got)
	}
	b.choose("curves-facet", "data")
	b.frame()
	if n := js[int](b, `document.querySelectorAll("#curves-plots > div").length`); n != 3 {
		t.Errorf("%d places for three plots", n)
	}
	if got := b.texts(".facet"); got != "data = Caltech101 | data = Flowers102 | data = OxfordPets" {
		t.Errorf("plots of %s", got)
	}

	// the link shows the same search in another tab
	other := newTab(t)
	other.do(chromedp.Navigate(link), chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	if got := other.text("#runs-status"); got != "3 of 45 runs" {
		t.Errorf("the link shows %s", got)
	}
	b.quiet()
}

// TestMeanOverSeeds reads displayed means and bands. By hand: the third run is complete, the first has no value in
// round 2, and only one has round 3.
func TestMeanOverSeeds(t *testing.T) {
	run := func(name string, x []int, y ...float64) page.Run {
		return page.Run{RunJSON: results.RunJSON{State: results.Done}, Name: name, Group: "g", Experiment: "g",
			Curves: []page.Curve{{Metric: "m", Rounds: x, Values: y}}}
	}
	b := open(t, page.Report{Title: "t", Metrics: []page.Metric{{Name: "m"}}, Runs: []page.Run{
		run("a", []int{0, 1, 4}, 1, 2, 10), run("b", []int{0, 1, 2, 4}, 3, 2, 5, 13),
		run("c", []int{0, 1, 2, 3, 4}, 5, 2, 5, 9, 16)}})
	b.click("#curves-data summary")
	b.until(`document.querySelector("#curves-data table") !== null`)
	if got := b.texts("#curves-data tbody tr"); got != "03 | 12 | 413" { // rounds 0, 1, 4 with the means 3, 2, 13
		t.Errorf("means over seeds: %s", got)
	}
	if !js[bool](b, `document.getElementById("curves-bands").checked &&
		!document.getElementById("curves-band").hidden`) {
		t.Error("one line shows no band by itself")
	}
	b.choose("runs-by", "group")
	// of the last values 10, 13, 16: mean 13, sample deviation 3
	if got := b.text("#runs-table tr.total"); !strings.Contains(got, "13 ± 3") {
		t.Errorf("the group shows %q", got)
	}
	b.quiet()
}

// TestOneNameTwoExperiments: runs of one name are averaged as seeds only within one experiment. Means are of finished
// runs, and in the table of a headline metric only within one evaluation. A line of an unfinished run says so.
func TestOneNameTwoExperiments(t *testing.T) {
	run := func(name, experiment string, y float64) page.Run {
		return page.Run{RunJSON: results.RunJSON{State: results.Done}, Name: name, Group: "pacs", View: name,
			Experiment: experiment, Method: experiment, Labels: map[string]string{"run": "pacs"},
			Curves: []page.Curve{{Metric: "m", Rounds: []int{1, 2}, Values: []float64{y, y}}, {Metric: "headline",
				Rounds: []int{1}, Values: []float64{y}}}}
	}
	running := run("d", "maple", 90)
	running.State = results.Running
	b := open(t, page.Report{Title: "t", Metrics: []page.Metric{{Name: "m"}, {Name: "headline", Headline: true}},
		Runs: []page.Run{run("a", "fedotp", 10), run("b", "fedotp", 20), run("c", "maple", 70), running}})
	b.click("#curves-data summary")
	b.until(`document.querySelector("#curves-data table") !== null`)
	if got := b.texts("#curves-data tbody tr"); got != "11570 | 21570" { // the mean of 10 and 20, and 70
		t.Errorf("lines of two experiments: %s", got)
	}
	b.choose("curves-lines", "runs")
	if got := b.texts("#curves-legend button"); strings.Count(got, "not finished") != 1 || !strings.Contains(got,
		"d (not finished)") {
		t.Errorf("the legend of single runs is %q", got)
	}
	b.choose("runs-by", "group")
	if got := b.texts("#runs-table tr.total"); strings.Count(got, "±") != 1 || strings.Contains(got, "33") {
		t.Errorf("the groups show %q", got)
	}
	b.quiet()
}

// TestCompareAndCopy compares configurations transposed and copies tables in three formats.
func TestCompareAndCopy(t *testing.T) {
	r := sample(5, 4)
	b := open(t, r)
	b.run(`window.copied = [];
		Object.defineProperty(navigator, "clipboard", { value: { writeText: async (s) => { copied.push(s); } } })`)
	head := b.texts("#configuration thead th:nth-child(-n+2)")
	if head != "setting | PromptFL · Caltech101 (3 seeds)" {
		t.Errorf("columns are %s", head)
	}
	if got := b.texts("#configuration tbody th"); got != "method | data.set" {
		t.Errorf("settings that differ are %s", got) // the seed differs only within columns
	}
	for _, form := range []string{"Markdown", "LaTeX", "CSV"} {
		b.click(`#results-1 [aria-label="Copy the table as ` + form + `"]`)
	}
	b.until(`copied.length === 3`)
	for i, want := range []string{"| PromptFL | 60.00 ± 0.30 (paper 68.0 ± 0.3) |",
		`PromptFL & 60.00 $\pm$ 0.30 (paper 68.0 $\pm$ 0.3) &`, "\r\nPromptFL,60.00 ± 0.30 (paper 68.0 ± 0.3),"} {
		if got := js[[]string](b, `copied`)[i]; !strings.Contains(got, want) || !strings.Contains(got,
			"data Flowers102") {
			t.Errorf("copied %q; want %q", got, want)
		}
	}
	b.quiet()
}

// TestOneRun shows the details of a single run: classes with their confusion matrix, terms, log. Keys move between
// runs.
func TestOneRun(t *testing.T) {
	r := sample(5, 4)
	r.Runs, r.Runs[0].Details = r.Runs[:2], nil
	const log = "round 1: loss 3.1\nround 2: loss 2.5"
	r.Runs[1].Details = detailed(map[string]any{"log": strings.Split(log, "\n"),
		"confusion": record.Confusion{Classes: []string{"cat", "dog"},
			Global:   &metrics.Matrix{Counts: [][3]int64{{0, 0, 3}, {0, 1, 1}, {1, 1, 4}}},
			Personal: &metrics.Matrix{Counts: [][3]int64{{0, 0, 4}, {1, 1, 4}}}},
		"terms": []results.Term{{Name: "alignment", Rounds: []int{0, 1}, Value: []float64{1, 2},
			Norm: []float64{1, 2}, Relative: []float64{0.1, 0.25}}}})
	b := open(t, r)
	if js[bool](b, `document.querySelector("[data-panel=confusion]").checkVisibility()`) {
		t.Error("a run without a confusion matrix shows one")
	}
	b.run(`document.activeElement.blur()`)
	b.key("j")
	b.until(`document.querySelector("[data-panel=confusion]").checkVisibility()`)
	if got := b.text("#confusion-read"); got !=
		"2 classes, 8 test examples, global accuracy 87.50 %" { // 7 of 8
		t.Errorf("classes: %s", got)
	}
	b.focus("#confusion-grid")
	b.key(kb.ArrowRight)
	b.key(kb.ArrowRight)
	if got := b.text("#confusion-read"); got != "cat predicted as dog: 1 of 4" {
		t.Errorf("the matrix reads %q", got)
	}
	b.choose("confusion-view", "personal")
	b.until(`document.getElementById("confusion-read").textContent.endsWith("personal accuracy 100.00 %")`)
	if got := b.text("#run-log"); got != log {
		t.Errorf("the log is %q", got)
	}
	if got := b.text("#terms-table tbody tr"); got != "alignment220.25" {
		t.Errorf("terms: %s", got)
	}
	b.run(`document.activeElement.blur()`)
	b.key("?")
	b.until(`document.getElementById("keys").open`)
	b.quiet()
}
