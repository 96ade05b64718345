package page_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/filetest"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// All data in this file is invented, for tests and for looking at pages.

var (
	madeMethods = []string{"PromptFL", "FedPGP", "FedPHA", "SDFed", "pFedDC"}
	madeSets    = []string{"Caltech101", "Flowers102", "OxfordPets"}
	madeClasses = []string{"dog", "elephant", "giraffe", "guitar", "horse", "house", "person", "accordion", "airplane",
		"anchor", "ant", "barrel", "bass", "beaver"}
	madeDomains = []string{"art", "cartoon", "photo", "sketch"}
	madeBones   = []string{"ViT-B/16", "ViT-B/32"}
)

// sample returns a sweep of five methods on three sets with seeds 1 to 3.
func sample(rounds, clients int) page.Report {
	r := page.Report{
		Title: "FedPHA, Table 1",
		Subtitle: "5 methods on 3 sets, 3 seeds, 8 clients, 50 rounds. Accuracy of the personalised prompts in " +
			"percent.",
		Notes: []string{"Mean over the last 10 tested rounds, ± standard deviation over seeds. Bold is the best " +
			"of each column."},
		Card: &configs.PaperTable{Paper: "FedPHA (ICML 2025)", Item: "Table 1",
			Title: "Heterogeneous prompt lengths against methods with one length, pathological split.",
			Wrong: []string{"The average of the published row FedPGP does not follow from its entries.",
				"Prompt lengths of the clients are not stated."},
			Differs: []configs.Difference{{Paper: "Five sets of photographs.",
				Here: "Tiny backbones, synthetic images.", Why: "The numbers show that the configuration runs."}}},
		Metrics: []page.Metric{{Name: "accuracy", Title: "Accuracy", Unit: "%"}, {Name: "loss", Title: "Loss"},
			{Name: "bytes", Title: "Bytes per round", Unit: "bytes"}, {Name: "seconds", Title: "Seconds per round",
				Unit: "s"}},
		Environment: []page.Pair{{Name: "system", Value: "linux/amd64"}, {Name: "processors", Value: "2"},
			{Name: "Go", Value: "go1.26"}, {Name: "ONNX Runtime", Value: "1.30.0"}},
		Methods: madeMethods,
	}
	table := page.Table{Title: "Accuracy (%)", Caption: "The paper's numbers stand below ours.",
		Columns: []page.Column{{Name: "method", Text: true}}}
	for _, s := range madeSets {
		table.Columns = append(table.Columns, page.Column{Name: s, Over: "data"})
	}
	table.Columns = append(table.Columns, page.Column{Name: "Average"})
	for mi, method := range madeMethods {
		row := page.Row{Cells: []page.Cell{{Text: method}}}
		sum := 0.0
		for si, set := range madeSets {
			level := 60 + 4*float64(mi) + 6*float64(si)
			group := method + " · " + set
			sum += level
			for seed := range uint64(3) {
				r.Runs = append(r.Runs, madeRun(group, method, set, seed+1, level, rounds, clients))
			}
			cell := cellOf(fmt.Sprintf("%.2f ± %.2f", level, 0.3+0.1*float64(mi)), level)
			cell.Bold = mi == len(madeMethods)-1
			cell.Paper = fmt.Sprintf("%.1f ± 0.3", level+8)
			if method == "SDFed" && set == "OxfordPets" {
				cell.Note = "2 of 3 seeds: one run failed"
			}
			row.Cells = append(row.Cells, cell)
		}
		average := cellOf(fmt.Sprintf("%.2f", sum/3), sum/3)
		average.Bold = mi == len(madeMethods)-1
		row.Cells = append(row.Cells, average)
		table.Rows = append(table.Rows, row)
	}
	table.Rows = append(table.Rows, page.Row{Summary: true, Cells: []page.Cell{{Text: "Average"}, cellOf("68.00",
		68), cellOf("74.00", 74), cellOf("80.00", 80), cellOf("74.00", 74)}})
	r.Tables = []page.Table{table}
	r.Significance = []page.Table{{Title: "FedPHA against the other methods",
		Caption: "Paired over sets, seeds and clients; Holm's correction.",
		Columns: []page.Column{{Name: "against", Text: true}, {Name: "mean difference"}, {Name: "p, t-test"},
			{Name: "p, Wilcoxon"}},
		Rows: []page.Row{
			{Cells: []page.Cell{{Text: "PromptFL"}, cellOf("+8.00", 8), cellOf("< 0.001", 0.0002),
				cellOf("< 0.001", 0.0001)}},
			{Cells: []page.Cell{{Text: "FedPGP"}, cellOf("+4.00", 4), cellOf("0.012", 0.012),
				cellOf("0.009", 0.009)}}}}}
	failed := &r.Runs[35].RunJSON // the third seed of SDFed on OxfordPets
	failed.State, failed.Why = results.Failed, "client 5 has no training images of any class: raise partition.min_size"
	r.Figures = madeFigures()
	r.Definitions = []page.Pair{{Name: "last10", Value: "accuracy, mean of the last 10 tested rounds"},
		{Name: "worst@last10", Value: "accuracy of the worst client, mean of the last 10 tested rounds"}}
	r.Reading = []string{"The evaluation is personal: each client has the parameters that it last trained."}
	return r
}

func madeRun(group, method, set string, seed uint64, level float64, rounds, clients int) page.Run {
	rng := rand.New(rand.NewPCG(seed, uint64(len(group))))
	run := page.Run{RunJSON: results.RunJSON{Seed: seed}, Name: fmt.Sprintf("%s, seed %d", group, seed), Group: group,
		Experiment: group, Method: method, Labels: map[string]string{"method": method, "data": set},
		Config: fmt.Sprintf("name: %s-%s\nmethod: %s\nseed: %d\nbackbones: [tiny-vit-b16, tiny-vit-b32]\ndata:\n  "+
			"set: %s\n  shots: 16\ntrain:\n  rounds: %d\n  lr: 0.002\n  schedule:\n    kind: cosine\n",
			method, set, method, seed, set, rounds)}
	curve := func(metric string, f func(k int) float64) {
		c := page.Curve{Metric: metric}
		for k := range rounds {
			c.Rounds = append(c.Rounds, k)
			c.Values = append(c.Values, f(k))
		}
		run.Curves = append(run.Curves, c)
	}
	rise := func(k int) float64 { return 1 - math.Exp(-float64(k)/(float64(rounds)/5)) }
	curve("accuracy", func(k int) float64 { return level - 25 + 25*rise(k) + rng.NormFloat64() })
	curve("loss", func(k int) float64 { return 3.5 - 2*rise(k) + 0.05*rng.NormFloat64() })
	curve("bytes", func(int) float64 { return 2 * 4 * 16 * 512 * float64(clients) })
	curve("seconds", func(int) float64 { return 0.5 + 0.1*rng.Float64() })
	run.PerClient = &page.ClientCurves{Metric: "accuracy", Values: make([]results.Numbers, clients)}
	for k := range rounds {
		run.PerClient.Rounds = append(run.PerClient.Rounds, k)
		for i, y := range run.PerClient.Values {
			v := min(100, level-25+25*rise(k)+20*math.Sin(float64(i))+2*rng.NormFloat64())
			run.PerClient.Values[i] = append(y, v)
		}
	}
	run.Details = detailed(map[string]any{"confusion": record.Confusion{Classes: madeClasses,
		Personal: &metrics.Matrix{Counts: [][3]int64{{0, 0, 3}, {0, 1, 1}, {1, 1, 4}}}}})
	// the partition depends on set and seed, not on the method
	deal := rand.New(rand.NewPCG(seed, uint64(len(set))))
	run.Clients = &experiment.Clients{Classes: madeClasses}
	for i := range clients {
		c := experiment.ClientInfo{Backbone: madeBones[i%2], Domain: madeDomains[i%4],
			Train: make([]int, len(madeClasses)), Test: make([]int, len(madeClasses))}
		for j := range c.Train {
			if v := deal.ExpFloat64(); v > 1 {
				c.Train[j] = int(20 * (v - 0.8))
				c.Test[j] = 1 + c.Train[j]/4
			}
		}
		run.Clients.Clients = append(run.Clients.Clients, c)
	}
	return run
}

// detailed returns page.Run.Details with the data of panels.
func detailed(panels map[string]any) json.RawMessage {
	text, err := json.Marshal(panels)
	if err != nil {
		panic(err)
	}
	return text
}

// complete fills in what runs of a test leave out: a folder and an experiment named like the run, the state, the number
// of rounds, and configurations as details.
func complete(r page.Report) page.Report {
	for _, name := range []string{"partition", "confusion", "terms", "log", "config"} {
		r.Panels = append(r.Panels, page.Panel{Name: name, Half: name == "partition" || name == "confusion"})
	}
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Folder, run.Group = cmp.Or(run.Folder, run.Name), cmp.Or(run.Group, run.Name)
		run.Experiment, run.State = cmp.Or(run.Experiment, run.Folder), cmp.Or(run.State, results.Done)
		for _, c := range run.Curves {
			run.Rounds = max(run.Rounds, len(c.Rounds))
		}
		details := map[string]any{}
		if err := json.Unmarshal(run.Details, &details); run.Details != nil && err != nil {
			panic(err)
		}
		details["config"] = (&results.Run{Config: run.Config}).ConfigLines()
		if run.Details = detailed(details); r.Live {
			run.Details = nil
		}
	}
	return r
}

// madeFigures are curves in four panels, a confusion matrix of each method, and strips of many clients.
func madeFigures() (out []page.Figure) {
	curves := figures.Curves{Colours: figures.MethodColours(madeMethods)}
	matrices := figures.HeatMap{X: "predicted class", Y: "class", RowNames: madeClasses, ColumnNames: madeClasses,
		Value: "share of the class", Scale: [2]float64{0, 1}, WithoutValues: true}
	strips := figures.Strips{Y: figures.Axis{Label: "accuracy of a client (%)"}, Colours: curves.Colours}
	for _, set := range append(slices.Clone(madeSets), "another set") {
		panel := figures.LinePanel{Title: set, X: figures.Axis{Label: "round"}, Y: figures.Axis{Label: "accuracy (%)"}}
		for mi, method := range madeMethods {
			line := figures.Line{Label: method}
			for k := range 50 {
				line.X = append(line.X, float64(k))
				line.Y = append(line.Y, 35+4*float64(mi)+25*(1-math.Exp(-float64(k)/10)))
			}
			panel.Lines = append(panel.Lines, line)
		}
		curves.Panels = append(curves.Panels, panel)
	}
	for mi, method := range madeMethods {
		rows := make([][]float64, len(madeClasses))
		for i := range rows {
			rows[i] = make([]float64, len(madeClasses))
			rows[i][i], rows[i][(i+1+mi)%len(rows)] = 0.8, 0.2
		}
		matrices.Panels = append(matrices.Panels, figures.HeatPanel{Title: method, Values: rows})
		strip := figures.StripPanel{Title: method}
		for b, bone := range madeBones {
			group := figures.StripGroup{Label: bone}
			for k := range 60 {
				group.Values = append(group.Values, 60+10*float64(b)+5*math.Sin(float64(k+mi)))
			}
			strip.Groups = append(strip.Groups, group)
		}
		strips.Panels = append(strips.Panels, strip)
	}
	for i, d := range []figures.Drawer{curves, matrices, strips} {
		f, err := figures.Draw(d)
		if err != nil {
			panic(err)
		}
		one := page.Figure{Title: []string{"Accuracy by round", "Confusion matrices", "Clients by backbone"}[i],
			Caption: "How a reader reads this figure, in a sentence or two."}
		if one.SVG, one.Width, err = f.PageSVG(0); err == nil {
			one.Phone, one.PhoneWidth, err = f.PageSVG(figures.PhoneWidth)
		}
		if err != nil {
			panic(err)
		}
		out = append(out, one)
	}
	return out
}

// write writes a page into its own file and returns the path.
func write(t *testing.T, r page.Report) string {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("PROMPTFED_TEST_PAGES"); keep != "" { // keeps the pages of the tests in this folder
		dir = filepath.Join(keep, t.Name())
		filetest.Folder(t, dir)
	}
	file := filepath.Join(dir, "report.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := page.Write(f, complete(r)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSample(t *testing.T) { write(t, sample(50, 8)) }

// cellOf returns a cell with sort key v.
func cellOf(text string, v float64) page.Cell { return page.Cell{Text: text, Value: &v} }
