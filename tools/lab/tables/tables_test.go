package tables

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
)

// accurate returns an evaluation with only an accuracy.
func accurate(accuracy float64) *metrics.Evaluation {
	return &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: accuracy}}
}

// run returns a finished run with these accuracies in its rounds, and two domains 0.1 below and above each.
func run(seed uint64, accuracies ...float64) *results.Run {
	r := &results.Run{Seed: seed, State: results.Done}
	for i, a := range accuracies {
		r.Rounds = append(r.Rounds, results.Round{Record: record.Record{Round: i, Tested: true, Seconds: 90,
			BytesUp: 1000, BytesDown: 500,
			Evaluation: &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: a, metrics.DomainMean: a,
				metrics.DomainStd: .1}, PerDomain: map[string]float64{"Art": a - .1,
				"Photo": a + .1}}}})
	}
	return r
}

// whole shows all metrics and definitions of a table.
var whole = View{All: true, Definitions: true}

// sweep returns a sweep of two methods over two sets and two values of rho. In the last cell one of two seeds failed.
func sweep(t *testing.T, card string) []*results.Group {
	t.Helper()
	p := &results.Plan{Plan: configs.Plan{Name: "grid", Axes: []results.Axis{{Name: "method", Labels: []string{"P_1",
		"F&2"}},
		{Name: "data", Labels: []string{"cat", "dog"}}, {Name: "ρ", Labels: []string{"0.3", "0.8"}}}}}
	if card != "" {
		p.Card = &configs.PaperTable{}
		goldentest.NoError(t, json.Unmarshal([]byte(card), p.Card))
	}
	base := map[string]float64{"P_1": .5, "F&2": .6}
	plus := map[string]float64{"cat": 0, "dog": .1}
	var out []*results.Group
	for _, method := range p.Axes[0].Labels {
		for _, data := range p.Axes[1].Labels {
			for i, rho := range p.Axes[2].Labels {
				a := base[method] + plus[data] + float64(i)*.02
				g := &results.Group{Name: method + ", " + data + ", " + rho, Plan: p,
					Labels: map[string]string{"method": method, "data": data, "ρ": rho},
					Runs:   []*results.Run{run(1, .1, a), run(2, .1, a+.04)}}
				out = append(out, g)
			}
		}
	}
	g := out[len(out)-1]
	g.Runs[1] = &results.Run{Seed: 2, State: results.Failed, Reason: "out of memory | 100 %"}
	return out
}

const card = `{"paper":"X","item":"Table 1","rows":["method"],"columns":["data"],"metric":"last","average":"both",
"numbers":{"by":["method","data"],"values":{"P_1":{"cat":[54.5,0.5],"dog":60,"Average":57},"F&2":{"dog":75.25}}},
"wrong":["The mean of row 2 is off."],"differs":[{"paper":"Fifty rounds.","here":"Ten.","why":"Time."}]}`

func build(t *testing.T, groups []*results.Group, l Layout) *Table {
	t.Helper()
	if p := groups[0].Plan; p != nil && p.Card != nil {
		l.Card = p.Card
		l.Rows, l.Columns, l.Metric, l.Average = p.Card.Rows, p.Card.Columns, p.Card.Metric, p.Card.Average
	}
	tab, err := Build(groups, l)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

var update = flag.Bool("update", false, "write the texts anew")

// golden compares a text with a file, which was checked by eye; its numbers are computed below.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		filetest.Write(t, path, got)
	}
	want := filetest.Read(t, path)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// By hand: P_1 on cat with seed 1 is the mean of 0.50 and 0.52 over rho, 0.51, with seed 2 0.55: 53.00 and, from two
// deviations of 2.00 and n-1 = 1, ± 2.83. On dog 63.00 ± 2.83, so the row's average is 58.00 ± 2.83. F&2 on cat is
// 63.00 ± 2.83; on dog seed 2 lacks a value of rho, so only seed 1 counts: the mean of 0.70 and 0.72, 71.00, and 66.00
// in the row's average, from 61 and 71.
func TestPaperLayout(t *testing.T) {
	tab := build(t, sweep(t, card), Layout{Title: "X, Table 1", Second: true})
	var got []string
	for _, r := range tab.Rows {
		for _, c := range r.Cells {
			got = append(got, tab.Text(c))
		}
	}
	want := []string{"53.00 ± 2.83 (54.5 ± 0.5, −1.50)", "63.00 ± 2.83 (60, +3.00)", "58.00 ± 2.83 (57, +1.00)",
		"63.00 ± 2.83", "71.00 (75.25, −4.25) [1]", "66.00 [2]", "58.00 ± 2.83", "66.00 [2]", "61.00 [2]"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("cells\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i, r := range tab.Rows {
		for j, c := range r.Cells {
			if c.Best != (i == 1) || c.Second != (i == 0) {
				t.Errorf("row %d, column %d: best %v, second %v", i, j, c.Best, c.Second)
			}
		}
	}
	for name, write := range map[string]func(*strings.Builder) error{
		"paper.md":  func(b *strings.Builder) error { return Markdown(b, tab) },
		"paper.tex": func(b *strings.Builder) error { return LaTeX(b, tab) },
		"paper.csv": func(b *strings.Builder) error { return CSV(b, tab) },
		"paper.txt": func(b *strings.Builder) error { _, err := b.WriteString(tab.Terminal(whole)); return err },
	} {
		var b strings.Builder
		goldentest.NoError(t, write(&b))
		golden(t, name, b.String())
	}
}

// A cell without a point that the cells beside it average is not compared with them, and a note says so.
func TestUnequalPoints(t *testing.T) {
	groups := sweep(t, "")
	groups[4].Runs[0].TestData = "other" // of F&2 on cat
	layout := Layout{Rows: []string{"method"}, Columns: []string{"data"}}
	text := build(t, slices.Delete(groups, 5, 6), layout).Terminal(whole)
	goldentest.Contains(t, strings.Join(strings.Fields(text), " "), "F&2 62.00 ± 2.83 [1] *71.00", "[1] over 1 of 2 "+
		"points of the averaged axes, not compared")
	if strings.Contains(text, "do not all have") {
		t.Error(text)
	}
}

// Every line of the CSV has as many fields as the head, and labels survive a round trip.
func TestCSVReadsBack(t *testing.T) {
	var b strings.Builder
	goldentest.NoError(t, CSV(&b, build(t, sweep(t, card), Layout{Title: "a \"table\",\nwith all"})))
	lines, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(lines) != 10 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	if lines[1][0] != "a \"table\",\nwith all" || lines[4][1] != "F&2" {
		t.Errorf("%q", lines[1:5])
	}
}

// The pseudo-axis of domains: the domains lie 0.1 around the mean, so their deviation is 10.
func TestDomains(t *testing.T) {
	groups := sweep(t, `{"rows":["method","ρ"],"columns":["data","domain"],"average":"row",
		"numbers":{"by":["method","data","domain"],"values":{"P_1":{"cat":{"Std":9.5}}}}}`)
	tab := build(t, groups, Layout{})
	if got := strings.Join(tab.Heads(), "|"); got != "method|ρ|cat, Art|cat, Photo|cat, Average|cat, Std|dog, "+
		"Art|dog, Photo|dog, Average|dog, Std" {
		t.Errorf("heads %s", got)
	}
	var got []string
	for _, c := range tab.Rows[0].Cells[:4] { // P_1, 0.3 on cat: 0.50 and 0.54
		got = append(got, tab.Text(c))
	}
	if s := strings.Join(got, "|"); s != "42.00 ± 2.83|62.00 ± 2.83|52.00 ± 2.83|10.00 ± 0.00" {
		t.Errorf("row %s", s) // no paper number: the paper does not distinguish values of rho
	}
	if c := tab.Rows[0].Cells[3]; c.Best || !c.Metric.Lower {
		t.Errorf("deviations over domains: %+v", c)
	}
	// Without averages the mean over clients stands beside the domains.
	tab, err := Build(groups, Layout{Rows: []string{"domain"}, Columns: []string{"method"}})
	if err != nil || len(tab.Rows) != 3 || tab.Rows[2].Labels[0] != OverallLabel {
		t.Errorf("%+v, %v", tab, err)
	}
}

// Averages over one axis of two appear if the paper has them: here over rho within cat, and over both.
func TestPartialAverages(t *testing.T) {
	groups := sweep(t, `{"rows":["data","ρ"],"columns":["method"],"average":"both",
		"numbers":{"by":["method","data","ρ"],"values":{"P_1":{"cat":{"Average":54}}}}}`)
	tab := build(t, groups, Layout{})
	var got []string
	for _, r := range tab.Rows {
		got = append(got, strings.Join(r.Labels, " ")+": "+tab.Text(r.Cells[0]))
	}
	want := "cat 0.3: 52.00 ± 2.83|cat 0.8: 54.00 ± 2.83|cat Average: 53.00 ± 2.83 (54, −1.00)|dog 0.3: 62.00 ± " +
		"2.83|dog 0.8: 64.00 ± 2.83|Average Average: 58.00 ± 2.83"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
	if n := len(tab.Columns); n != 3 || !tab.Columns[2].Average {
		t.Errorf("%d columns", n)
	}
}

// Evaluation sets of only some points of the grid, such as leave-one-domain-out sets, are averaged over these points.
func TestSets(t *testing.T) {
	groups := sweep(t, "")
	for _, g := range groups {
		for i, r := range g.Runs {
			if len(r.Rounds) > 0 {
				r.Rounds[1].EvaluationSets = map[string]record.SetResult{"without " +
					g.Labels["data"]: {Evaluation: accurate(.2 + float64(i)/10)}}
			}
		}
	}
	tab, err := Build(groups, Layout{Rows: []string{"method"}, Columns: []string{SetAxis}, Average: "row"})
	goldentest.NoError(t, err)
	if got := strings.Join(tab.Heads(), "|") + "|" + tab.Text(tab.Rows[0].Cells[0]); got != "method|without "+
		"cat|without dog|Average|25.00 ± 7.07" {
		t.Error(got)
	}
}

func TestUnits(t *testing.T) {
	groups := sweep(t, `{"rows":["method"],"columns":["data"],"metric":"seconds",
		"numbers":{"unit":"minutes","by":["method","data"],"values":{"P_1":{"cat":2}}}}`)
	tab := build(t, groups, Layout{Smoke: true})
	if got := tab.Text(tab.Rows[0].Cells[0]); got != "1.50 ± 0.00 (2)" { // 90 seconds a round
		t.Errorf("minutes: %s", got)
	}
	if !strings.Contains(strings.Join(tab.Caption, " "), "(min)") || !strings.Contains(tab.Legend.Paper, "--smoke") {
		t.Errorf("caption %q", tab.Caption)
	}
	tab, err := Build(groups, Layout{Rows: []string{"method"}, Columns: []string{"data"}, Metric: "last",
		Card: groups[0].Plan.Card})
	if err != nil || tab.Rows[0].Cells[0].Paper != nil || !strings.Contains(strings.Join(tab.Remarks, " "),
		"last is not measured in minutes") {
		t.Errorf("accuracies beside minutes: %q, %v", tab.Remarks, err)
	}
	tab, err = Build(groups, Layout{Rows: []string{"method"}, Columns: []string{MetricAxis}, Metrics: []string{"last",
		"bytes", "ece"}, Card: groups[0].Plan.Card})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tab.Heads(), "|"); got != "method|last (%)|bytes@all" {
		t.Errorf("heads %s: nobody has a calibration error", got)
	}
	if strings.Contains(strings.Join(tab.Caption, " "), "calibration") || len(tab.Notes) != 1 {
		t.Errorf("what is not shown is spoken of: %q, %q", tab.Caption, tab.Notes)
	}
	if c := tab.Rows[0].Cells; tab.Text(c[1]) != "1500 ± 0" || c[0].Paper != nil {
		t.Errorf("%s, %+v", tab.Text(c[1]), c[0].Paper)
	}
}

// TestNoBestOfCosts: a method without training and messages has the fewest bytes, the least time and deviation. It is
// not marked as best in these columns; the better method is marked in accuracy.
func TestNoBestOfCosts(t *testing.T) {
	run := func(accuracy, std float64, bytes int, seconds float64) *results.Run {
		e := &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: accuracy, metrics.ClientStd: std,
			metrics.Worst: accuracy, metrics.F1: accuracy}}
		return &results.Run{State: results.Done, Rounds: []results.Round{{Record: record.Record{Tested: true,
			Evaluation: e, Loss: &seconds, BytesUp: bytes, Seconds: seconds}}}}
	}
	var groups []*results.Group
	for name, r := range map[string]*results.Run{"zeroshot": run(.3, .01, 0, 1), "promptfl": run(.6, .2, 900, 9)} {
		groups = append(groups, &results.Group{Name: name, Labels: map[string]string{"method": name},
			Runs: []*results.Run{r}})
	}
	names := []string{"last", "f1", "worst", "client-std", "loss", "bytes", "seconds", "total-bytes"}
	tab, err := Build(groups, Layout{Rows: []string{"method"}, Columns: []string{MetricAxis}, Metrics: names})
	goldentest.NoError(t, err)
	for _, r := range tab.Rows {
		for j, c := range r.Cells {
			if want := r.Labels[0] == "promptfl" && j < 3; c.Best != want {
				t.Errorf("%s, %s: best %v, want %v", r.Labels[0], names[j], c.Best, want)
			}
		}
	}
	if strings.Contains(tab.Terminal(whole), "±") {
		t.Errorf("one seed has a deviation:\n%s", tab.Terminal(whole))
	}
}

// TestSeedsOfCells: a cell with fewer seeds than others states this, though nothing is missing in it.
func TestSeedsOfCells(t *testing.T) {
	var groups []*results.Group
	for name, seeds := range map[string]uint64{"three": 3, "two": 2} {
		g := &results.Group{Name: name, Labels: map[string]string{"method": name}}
		for s := range seeds {
			g.Runs = append(g.Runs, &results.Run{State: results.Done, Seed: s, Rounds: []results.Round{{
				Record: record.Record{Tested: true,
					Evaluation: accurate(float64(s+1) / 10)}}}})
		}
		groups = append(groups, g)
	}
	tab, err := Build(groups, Layout{Rows: []string{"method"}})
	goldentest.NoError(t, err)
	text := tab.Terminal(whole) // by hand: 10, 20, 30 deviate by 10, and 10, 20 by 10/sqrt(2)
	goldentest.Contains(t, text, "20.00 ± 10.00", "15.00 ± 7.07 [1]", "(n-1) over n = 2 to 3 seeds: 0, 1, 2",
		"[1] over n = 2 seeds, where other numbers of the table are over 3")
}

func TestBuildErrors(t *testing.T) {
	groups := sweep(t, "")
	for _, c := range []struct {
		l   Layout
		say string
	}{
		{Layout{Rows: []string{"metod"}}, "method, data, ρ"}, {Layout{Rows: []string{"data"},
			Columns: []string{"data"}}, "twice"},
		// the deciding group must not vary between reports
		{Layout{Rows: []string{"method", DomainAxis}, Columns: []string{MetricAxis}, Metrics: []string{"last", "f1"}},
			"no number for both"},
		{Layout{Metric: "lust"}, "did you mean last?"},
		{Layout{Rows: []string{MetricAxis}, Metrics: []string{"lust"}}, "did you mean last?"},
	} {
		if _, err := Build(groups, c.l); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
}

// A sweep with only failed cells is a table of dashes with the reasons.
func TestAllFailed(t *testing.T) {
	groups := sweep(t, card)
	for _, g := range groups {
		g.Runs = []*results.Run{{Seed: 1, State: results.Failed, Reason: "no data"}}
	}
	tab := build(t, groups, Layout{})
	if got := tab.Text(tab.Rows[0].Cells[0]); got != "– (54.5 ± 0.5) [1]" {
		t.Errorf("%s", got)
	}
	if n := tab.Notes[0]; !strings.Contains(n, "P_1, cat, 0.3, seed 1 and P_1, cat, 0.8, seed 1 failed: no data") {
		t.Errorf("note %q", n)
	}
	if tab.Rows[0].Cells[0].Best {
		t.Error("a dash is best")
	}
}

// LaTeX has no bare special characters, and braces and environments match; where pdflatex is installed, it compiles.
func TestLaTeXEscapes(t *testing.T) {
	tab := build(t, sweep(t, card), Layout{Title: `100 % of $x_1^2$ & #3 ~ \alpha {a} <b> [c] "d" ρ`, Second: true})
	text := tab.latex()
	caption, _, _ := strings.Cut(text[strings.Index(text, `\caption{`):], "\n")
	want := `\caption{100 \% of \$x\_1\textasciicircum{}2\$ \& \#3 \textasciitilde{} \textbackslash{}alpha \{a\} ` +
		`$<$b$>$ {[}c{]} ''d'' $\rho$.`
	if !strings.HasPrefix(caption, want) {
		t.Errorf("%s\nwant\n%s", caption, want)
	}
	depth := 0
	plain := strings.NewReplacer(`\{`, "", `\}`, "").Replace(text)
	for _, r := range plain {
		depth += strings.Count("{", string(r)) - strings.Count("}", string(r))
	}
	if depth != 0 || strings.Count(text, `\begin{`) != strings.Count(text, `\end{`) {
		t.Errorf("braces are off by %d:\n%s", depth, text)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(line, `\\`) && strings.Count(line, "&")-strings.Count(line, `\&`) != 3 {
			t.Errorf("a line of other than four columns: %s", line)
		}
	}
	if _, err := exec.LookPath("pdflatex"); err != nil {
		t.Log("pdflatex is not installed; the text was not compiled")
		return
	}
	dir := t.TempDir()
	doc := "\\documentclass{article}\\usepackage[utf8]{inputenc}\\usepackage{booktabs}\\begin{document}\n" + text +
		"\\end{document}\n"
	filetest.Write(t, filepath.Join(dir, "t.tex"), doc)
	c := exec.Command("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Special characters of Markdown in labels and notes stay text.
func TestMarkdownEscapes(t *testing.T) {
	if got := markdownText("a_b*c<d>[1]`e`\\\n#"); got != `a\_b\*c\<d\>\[1\]`+"\\`e\\`"+`\\ \#` {
		t.Errorf("%s", got)
	}
}
