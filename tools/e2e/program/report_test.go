package program

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/identity"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/runfolder"
)

// madeSweep writes the folder of a finished sweep over methods, two lengths on x, y and z, and two seeds: six clients
// of two backbones and three domains with accuracies that follow from the labels.
func madeSweep(t *testing.T, dir, card string) {
	t.Helper()
	p := configs.Plan{Name: "made", Axes: []results.Axis{{Name: "method", Labels: []string{"A", "B"}},
		{Name: "x", Labels: []string{"4", "8"}},
		{Name: "y", Labels: []string{"4", "8"}}, {Name: "z", Labels: []string{"4", "8"}}}, Seeds: []uint64{1, 2}}
	if card != "" {
		p.Card = &configs.PaperTable{}
		goldentest.NoError(t, json.Unmarshal([]byte(card), p.Card))
	}
	for i := range 32 {
		labels := map[string]string{"method": p.Axes[0].Labels[i/16]}
		for k, axis := range []string{"x", "y", "z"} {
			labels[axis] = p.Axes[k+1].Labels[i>>(3-k)&1]
		}
		seed := uint64(i&1 + 1)
		c := configs.PlanCell{Folder: fmt.Sprintf("cell-%d/seed-%d", i/2, seed), Labels: labels, Seed: seed}
		p.Cells = append(p.Cells, c)
		base := .5 + .02*float64(i/2) + .01*float64(seed)
		if i/16 == 1 {
			base -= .25
		}
		madeRun(t, filepath.Join(dir, c.Folder), seed, base)
	}
	text, err := p.JSON()
	goldentest.NoError(t, err)
	filetest.Write(t, filepath.Join(dir, configs.PlanFile), text)
}

// writeReports writes the standard report.
func writeReports(dirs []string, out string) (*report.Report, error) {
	r, err := report.New(context.Background(), dirs, out, report.Standard())
	if err != nil {
		return nil, err
	}
	_, err = r.Write(context.Background())
	return r, err
}

// madeRun writes a run folder of three rounds: client k has accuracy base + 0.01 k after the last round, and 0.1 and
// 0.2 less in the rounds before.
func madeRun(t *testing.T, dir string, seed uint64, base float64) {
	t.Helper()
	var records []record.Record
	var text []byte
	clients := experiment.Clients{Classes: []string{"cat", "dog"}}
	prompts := tensor.Map{}
	for k := range 6 {
		clients.Clients = append(clients.Clients, experiment.ClientInfo{Backbone: []string{"small", "large"}[k%2],
			Domain: []string{"Art", "Photo", "Sketch"}[k/2],
			Train:  []int{k, 6 - k}, Val: []int{0, 0}, Test: []int{10, 10}})
		own := tensor.New(2+k%2, 4) // lengths differ between backbones
		for i := range own.Data {
			own.Data[i] = float32(k*i) + float32(seed)
		}
		prompts[fmt.Sprintf("client/%d/own/ctx", k)] = own
	}
	for round := range 3 {
		e, accuracy := &metrics.Evaluation{PerDomain: map[string]float64{}}, 0.
		r := record.Record{Round: round, Loss: new(1.), Tested: true, BytesUp: 100, BytesDown: 200, Seconds: .5,
			Evaluation: e, View: "personal",
			Evaluations: record.Evaluations{Global: e, Personal: e}, Global: &accuracy, Personal: &accuracy}
		for k := range 6 {
			a := base + .01*float64(k) - .1*float64(2-round)
			e.PerClient, r.TestSizes = append(e.PerClient, a), append(r.TestSizes, 20)
			e.PerDomain[clients.Clients[k].Domain] += a / 2
		}
		mean, std := metrics.Mean(e.PerClient), metrics.Deviation(e.PerClient)
		e.Values = map[string]float64{metrics.F1: .5, metrics.Accuracy: mean, metrics.ClientStd: std,
			metrics.Weighted: mean, metrics.Worst: e.PerClient[0], metrics.DomainMean: mean}
		accuracy = mean
		records = append(records, r)
		line := goldentest.JSON(t, r)
		text = append(append(text, line...), '\n')
	}
	filetest.Write(t, filepath.Join(dir, record.RoundsFile), text)
	filetest.Write(t, filepath.Join(dir, runfolder.ConfigFile),
		fmt.Sprintf("name: made\nmethod: promptfl\nseed: %d\n", seed))
	id := identity.Identity{Version: 1, Seed: seed, Values: map[string]string{"cell": filepath.Dir(dir)}}
	goldentest.NoError(t, id.Write(dir))
	for name, v := range map[string]any{record.SummaryFile: record.Summarise(records, method.PersonalView),
		runfolder.ClientsFile: clients} {
		text := goldentest.JSON(t, v)
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	image := &tensor.Tensor{Shape: []int{4, 3}, Data: []float32{1, 0, 0, .8, .6, 0, 0, 1, 0, 0, .6, .8}}
	side := &tensor.Tensor{Shape: []int{2, 3}, Data: []float32{1, 0, 0, 0, 1, 0}}
	features := tensor.Map{"small/image": image, "small/label": {Shape: []int{4}, Ints: []int64{0, 0, 1, 1}},
		"small/text/start": side, "small/text/end": side}
	for name, m := range map[string]tensor.Map{record.PromptsFile: prompts, record.EmbeddingsFile: features} {
		goldentest.NoError(t, safetensors.WriteFile(filepath.Join(dir, name), m, nil))
	}
}

const everyKind = `{"paper":"P","item":"Table 9","title":"all","rows":["method"],"columns":["x"],"metric":"last",
"average":"row","numbers":{"by":["method","x"],"values":{"A":{"4":60}}},"figures":[
{"kind":"curves","line":"method","panel":"x"},{"kind":"shots","x":"x","line":"method","panel":"y"},
{"kind":"sensitivity","x":"z","metric":"worst"},{"kind":"heatmap","x":"x","y":"y","panel":"z"},
{"kind":"scatter3","x":"x","y":"y","z":"z"},{"kind":"box","group":"x"},{"kind":"box","group":"domain"},
{"kind":"box"},{"kind":"strips"},{"kind":"tsne"},{"kind":"pca"},{"kind":"bubbles"},{"kind":"cost"},
{"kind":"pca","panel":"class"}]}`

// The report draws every kind of figure of a card. The numbers of the table are worked out by hand: of method A, x 4
// are the cells 0 to 3 with bases 0.50 to 0.56, so 0.53, and 0.01 or 0.02 for the seed and 0.025 for the mean client:
// 56.50 and 57.50, which deviate by 0.71 with n-1.
func TestReportOfEveryKind(t *testing.T) {
	dir := t.TempDir()
	madeSweep(t, dir, everyKind)
	made, err := writeReports([]string{dir}, dir)
	goldentest.NoError(t, err)
	text := made.Text(tables.View{All: true, Definitions: true})
	goldentest.Contains(t, text, "P, Table 9: all", "A       *57.00 ± 0.71 (60, −3.00)  *65.00 ± 0.71  *61.00 ± "+
		"0.71", "Averaged over y (4, 8) and z (4, 8).")
	if strings.Contains(text, "note:") {
		t.Errorf("notes in\n%s", text)
	}
	files := []string{"tables.md", "tables.tex", "tables.csv", "report.json", "report.html"}
	for i, kind := range []string{"curves", "shots", "sensitivity", "heatmap", "scatter3", "box", "box", "box",
		"strips", "tsne", "pca", "bubbles", "cost", "pca"} {
		files = append(files, fmt.Sprintf("plots/%d-%s.png", i+1, kind), fmt.Sprintf("plots/%d-%s.svg", i+1, kind))
	}
	for _, f := range append(files, "plots/significance.svg", "plots/accuracy-bytes.svg") {
		if len(read(t, dir, f)) == 0 {
			t.Errorf("%s is empty", f)
		}
	}
	// 14 of the card, the accuracy against bytes and the significance, twice each
	if list, _ := filepath.Glob(filepath.Join(dir, "plots", "*")); len(list) != 32 {
		t.Errorf("plots %v", list)
	}
	for figure, each := range map[string]bool{"plots/11-pca.svg": false, "plots/14-pca.svg": true} {
		if got := strings.Contains(string(read(t, dir, figure)), "their mean"); got != each {
			t.Errorf("%s: a panel for each class, with the mean of its images: %v", figure, got)
		}
	}
	var j results.JSON
	goldentest.ReadJSON(t, filepath.Join(dir, "report.json"), &j)
	if len(j.Groups) != 16 || j.Groups[0].Runs[1].Folder != "cell-0/seed-2" || len(j.Significance) != 2 {
		t.Errorf("%d groups, %+v, %d comparisons", len(j.Groups), j.Groups[0].Runs, len(j.Significance))
	}
	// A is above B by 0.25 - 8 x 0.02 = 0.09 in all 16 pairs of runs and 96 of clients; clients are not tested.
	if c := j.Significance[0]; c.N != 96 || c.Runs != 16 || math.Abs(*c.Difference-.09) > 1e-9 || c.WPHolm != nil {
		t.Errorf("%+v", c)
	}
	if c := j.Significance[1]; c.Level != results.OverRuns || c.N != 16 || *c.WP != 2./65536 {
		t.Errorf("%+v", c)
	}
	again := read(t, dir, "report.html")
	if _, err := writeReports([]string{dir}, dir); err != nil || string(again) != string(read(t, dir, "report.html")) {
		t.Error("the same runs give another page", err)
	}
}

// Runs outside of a sweep, beside a sweep, have a table of their own, and figures have the names of the parts.
func TestReportOfSeveral(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	madeSweep(t, filepath.Join(dir, "grid"), "")
	madeRun(t, filepath.Join(dir, "single", "seed-1"), 1, .3)
	madeRun(t, filepath.Join(dir, "single", "seed-2"), 2, .5)
	filetest.Write(t, filepath.Join(dir, "single", "seed-2", record.RoundsFile), "{\"format\":2}\n{\n")
	made, err := writeReports([]string{filepath.Join(dir, "grid"), filepath.Join(dir, "single")}, out)
	goldentest.NoError(t, err)
	text := made.Text(tables.View{All: true, Definitions: true})
	goldentest.Contains(t, text, "made\nmethod", "Runs\nrun", "made  32.50 [1]",
		"[1] 1 of 2 seeds; seed 2 failed: summary.json counts 3 rounds, rounds.jsonl has 1", "note: ")
	for _, f := range []string{"made-accuracy.svg", "runs-accuracy.svg", "runs-partition.png"} {
		if _, err := os.Stat(filepath.Join(out, "plots", f)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(string(read(t, out, "report.html")), "counts 3 rounds") {
		t.Error("the page does not name the failed run")
	}
}

// If one client did not answer the test of a round, the round has no curves of clients, and the report is written.
func TestReportOfAnAbsentClient(t *testing.T) {
	dir := t.TempDir()
	madeRun(t, dir, 1, .5)
	lines := strings.SplitAfter(string(read(t, dir, record.RoundsFile)), "\n")
	var r record.Record
	goldentest.NoError(t, json.Unmarshal([]byte(lines[1]), &r))
	r.Answered, r.Unanswered = []int{0, 1, 3, 4, 5}, []int{2}
	for _, e := range []*metrics.Evaluation{r.Evaluation, r.Evaluations.Global, r.Evaluations.Personal} {
		e.PerClient = e.PerClient[:5]
	}
	r.TestSizes = r.TestSizes[:5]
	line := goldentest.JSON(t, r)
	lines[1] = string(line) + "\n"
	filetest.Write(t, filepath.Join(dir, record.RoundsFile), strings.Join(lines, ""))
	if _, err := writeReports([]string{dir}, dir); err != nil {
		t.Error(err)
	}
}

// The CSV of report for a finished sweep has the means and deviations of the summaries of the runs.
func TestReportCommand(t *testing.T) {
	dir, file := setupSweep(t, 2)
	out := filepath.Join(dir, "grid")
	if text := mustRun(t, "sweep", file, "--out", out); !strings.Contains(text,
		"Mean ± sample standard deviation (n-1) over n = 2 seeds: 1, 2.") {
		t.Errorf("a sweep does not end with its table:\n%s", text)
	}
	for _, f := range []string{"tables.md", "tables.tex", "tables.csv", "report.json", "report.html",
		"plots/accuracy-personal.png", "plots/accuracy-global.svg", "plots/clients-personal.svg", "plots/cost.svg",
		"plots/partition.svg"} {
		if len(read(t, out, f)) == 0 {
			t.Errorf("%s is empty", f)
		}
	}
	other := filepath.Join(dir, "other")
	text := mustRun(t, "report", out, "--out", other, "--metric", "worst", "--rows", "batch", "--columns", "method",
		"--format", "csv")
	if !strings.Contains(text, "batch") || !strings.Contains(text, "Accuracy of the worst client") {
		t.Errorf("%s", text)
	}
	if list, _ := os.ReadDir(other); len(list) != 1 {
		t.Errorf("more was written than the CSV: %v", list)
	}
	lines, err := csv.NewReader(strings.NewReader(string(read(t, other, "tables.csv")))).ReadAll()
	goldentest.NoError(t, err)
	column := func(name string) int { return slices.Index(lines[0], name) }
	for _, c := range []struct{ batch, method string }{{"4", "PromptFL"}, {"6", "FedPHA"}} {
		var values []float64
		for _, seed := range []string{"1", "2"} {
			var s record.Summary
			folder := filepath.Join(out, strings.ToLower(c.method), c.batch, "seed-"+seed)
			goldentest.ReadJSON(t, filepath.Join(folder, record.SummaryFile), &s)
			values = append(values, 100*s.Evaluation.Values[metrics.Worst])
		}
		mean, std := metrics.Mean(values), metrics.Deviation(values)
		i := slices.IndexFunc(lines, func(l []string) bool {
			return l[column("batch")] == c.batch && l[column("method")] == c.method && l[column("metric")] == "worst"
		})
		if i < 0 {
			t.Fatalf("no line of %+v in %v", c, lines)
		}
		for name, want := range map[string]float64{"mean": mean, "std_sample": std * math.Sqrt2} {
			if got, err := strconv.ParseFloat(lines[i][column(name)], 64); err != nil || math.Abs(got-want) > 1e-6 {
				t.Errorf("%+v: %s is %v, want %v", c, name, lines[i][column(name)], want)
			}
		}
	}
	for _, args := range [][]string{{"report", filepath.Join(dir, "gone")}, {"report", out, "--metric", "lust"},
		{"report", out, "--rows", "metod"},
		{"report", out, "--std", "sample"}, {"report", out, "--format", "doc"}, {"report", out, "--average", "all"},
		{"report", t.TempDir()}, {"report"}} {
		_, text, code := call(args...)
		if code != usage || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "promptfed: ") {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
}
