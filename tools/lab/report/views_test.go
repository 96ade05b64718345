package report

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// last returns the metric of the last round.
func last(t *testing.T) results.Metric {
	t.Helper()
	m, err := results.ParseMetric("last")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// contested returns a part of a report on methods A and B, over some seeds and two values of beta. Each run has 12
// clients. B's clients are better by different amounts. A is tested globally and B personally, and only B lacks the
// other evaluation.
func contested(t *testing.T, seeds int) *view {
	t.Helper()
	plan := &results.Plan{Plan: configs.Plan{Name: "grid", Axes: []results.Axis{{Name: "method", Labels: []string{"A",
		"B"}}, {Name: "beta", Labels: []string{"0.1", "5"}}}}}
	var groups []*results.Group
	for i, method := range plan.Axes[0].Labels {
		for _, beta := range plan.Axes[1].Labels {
			g := &results.Group{Name: method + beta, Plan: plan, Labels: map[string]string{"method": method,
				"beta": beta}}
			for seed := range seeds {
				e := &metrics.Evaluation{}
				for k := range 12 {
					e.PerClient = append(e.PerClient, .5+.02*float64(i*(k+1))+.001*float64(i*seed))
				}
				mean := metrics.Mean(e.PerClient)
				e.Values = map[string]float64{metrics.Accuracy: mean}
				evaluations := record.Evaluations{Personal: e}
				if i == 0 {
					evaluations.Global = e
				}
				r := &results.Run{Seed: uint64(seed + 1), State: results.Done,
					Rounds: []results.Round{{Record: record.Record{Tested: true, Evaluations: evaluations}}}}
				r.Summary.MethodView = []string{results.GlobalView, results.PersonalView}[i]
				g.Runs = append(g.Runs, r)
			}
			groups = append(groups, g)
		}
	}
	found := &results.Results{Plans: []*results.Plan{plan}, Groups: groups}
	found.Select(record.MethodView)
	m := last(t)
	v := &view{Report: &Report{Results: found, json: found.Export("")}, plan: plan, groups: groups,
		metric: m, axis: "method"}
	v.compare()
	return v
}

// TestStars: the clients of a run are dependent. With fewer than six runs the figure has no stars, for any number of
// clients. With six or more pairs of runs it has the stars of the test over runs. With six differences of one sign the
// signed-rank test's p is 2/2^6 = 0.031, with eight 2/2^8.
func TestStars(t *testing.T) {
	for seeds, want := range map[int]float64{2: math.NaN(), 3: 2. / 64, 4: 2. / 256} { // two values of beta each
		v := contested(t, seeds)
		shown := "" // the tables agree with the figure
		for _, table := range v.tests {
			shown += fmt.Sprint(table.Heads())
		}
		if n := len(v.tests); (n == 1) != (seeds < 3) || strings.Contains(shown, "95 %") == (seeds < 3) ||
			strings.Contains(shown, "Cohen") == (seeds < 3) || strings.Contains(shown, "p Wil") == (seeds < 3) {
			t.Errorf("%d seeds: %d tables, %s", seeds, n, shown)
		}
		m := v.metric.InEvaluation(results.PersonalView)
		clients := v.pairs[m.Name][results.OverClients][0]
		few := seeds < 3
		if clients.N != 24*seeds || !math.IsNaN(clients.HolmWilcoxon) || math.IsNaN(clients.Low) != few ||
			math.IsNaN(clients.Cohen) != few {
			t.Errorf("%d pairs of clients of %d pairs of runs: %+v", clients.N, clients.Runs, clients)
		}
		d, err := v.significance(configs.Figure{}, m)
		f, ok := d.(figures.Significance)
		if err != nil || !ok || f.P[0][1] != want && !(math.IsNaN(want) && math.IsNaN(f.P[0][1])) ||
			math.Abs(f.Difference[1][0]-13-.1*float64(seeds-1)/2) > 1e-9 {
			t.Errorf("%d seeds: p %v, want %v; differences %v", seeds, f.P, want, f.Difference)
		}
		says := fmt.Sprintf("No stars. The unit is a pair of runs: N = %d, of %d seeds. With fewer than 6 pairs",
			2*seeds, seeds)
		if strings.HasPrefix(f.Test, says) != few {
			t.Errorf("%d seeds: %s", seeds, f.Test)
		}
		if global := v.pairs[results.GlobalView][results.OverClients]; len(global) != 1 || global[0].N != 0 {
			t.Errorf("B has no global evaluation, and is compared in it: %+v", global)
		}
	}
}

// TestRanks: a card with the figure has the table of ranks too, in the evaluation common to both methods. B is first
// for both values of beta. Its twelve clients are better by .02 to .24, plus .001 per seed: 13.1 points. Six
// differences of one sign have p 2/2^6.
func TestRanks(t *testing.T) {
	v := contested(t, 3)
	card := &configs.PaperTable{Control: "A", Figures: []configs.Figure{{Kind: configs.RanksFigure}}}
	v.plan.Card, v.plan.Merged = card, true
	for i, g := range v.groups {
		g.Runs[0].Identity = &identity.Identity{Values: map[string]string{"train.rounds": strconv.Itoa(i / 2),
			"method": g.Name, "options.tokens": g.Name}}
	}
	v.compare()
	goldentest.Contains(t, strings.Join(v.tests[len(v.tests)-1].Caption, " "), ", each label of method against A. A "+
		"pair of runs has the same seed and, beside its labels of method, differs in train.rounds. The")
	v.tests = nil
	v.rank(card)
	if len(v.tests) != 1 || v.tests[0].Title != "Ranks, personal evaluation: grid" {
		t.Fatalf("%d tables", len(v.tests))
	}
	want := [][]string{{"B", "1.0", "63.1 ± 0.1", "63.1 ± 0.1", "+13.1", "0.0312"},
		{"A", "2.0", "50.0 ± 0.0", "50.0 ± 0.0", "–", "–"}}
	for i, row := range v.tests[0].Rows {
		got := row.Labels
		for _, c := range row.Cells {
			got = append(got, v.tests[0].Text(c))
		}
		if fmt.Sprint(got) != fmt.Sprint(want[i]) {
			t.Errorf("row %q, want %q", got, want[i])
		}
	}
	if heads := fmt.Sprint(v.tests[0].Heads()); heads != "[method mean rank 0.1 5 over A p Wilcoxon, Holm]" {
		t.Error(heads)
	}
	if j := v.json.Ranks; len(j) != 1 || j[0].Metric != "personal" || fmt.Sprint(j[0].Labels, j[0].Ranks) !=
		"[B A] [[1 2] [1 2]]" {
		t.Errorf("in report.json: %+v", j)
	}
	d, err := v.ranks(card.Figures[0], v.metric.InEvaluation(results.PersonalView))
	if f, ok := d.(figures.Ranks); err != nil || !ok || fmt.Sprint(f.Names, f.Mean) != "[B A] [1 2]" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := v.ranks(card.Figures[0], v.metric.InEvaluation(results.GlobalView)); !errors.Is(err,
		figures.ErrEmpty) {
		t.Errorf("a figure of one method: %v", err)
	}
	for _, r := range slices.Concat(v.groups[2].Runs, v.groups[3].Runs) { // those of B
		r.TestData = "other images"
	}
	v.compare()
	v.tests = nil
	v.rank(card)
	if cells := v.tests[0].Rows[0].Cells; v.tests[0].Text(cells[3]) != "–" {
		t.Errorf("without any pair of runs the difference is %s", v.tests[0].Text(cells[3]))
	}
	card.Control = ""
	v.compare()
	v.tests = nil
	v.rank(card)
	if heads := fmt.Sprint(v.tests[0].Heads()); heads != "[method mean rank 0.1 5]" {
		t.Errorf("without a control: %s", heads)
	}
}

// TestFigureTitles: a figure states its evaluation, the methods without it, and the averaged axes. If methods are
// tested differently, there is one figure per evaluation, but a single figure of costs.
func TestFigureTitles(t *testing.T) {
	v := contested(t, 2)
	v.draw(t.Context(), nil)
	got, captions := map[string]string{}, map[string]string{}
	for _, f := range v.figures {
		got[f.file], captions[f.file] = f.title, f.caption
	}
	for file, title := range map[string]string{
		"accuracy-global": "Accuracy by round (global evaluation, without B; ± sample deviation, n = 2 seeds; " +
			"averaged over beta: 0.1, 5)",
		"accuracy-personal": "Accuracy by round (personal evaluation; ± sample deviation, n = 2 seeds; " +
			"averaged over beta: 0.1, 5)",
		"clients-personal": "Accuracy of clients (personal evaluation; over beta: 0.1, 5)",
	} {
		if got[file] != title {
			t.Errorf("%s: %q, want %q", file, got[file], title)
		}
	}
	for file, end := range map[string]string{
		"accuracy-global":   " deviation. B: no such evaluation. N = 2 seeds. Averaged over beta: 0.1, 5.",
		"accuracy-personal": " deviation. N = 2 seeds. Averaged over beta: 0.1, 5.",
		"clients-personal":  " clients beyond. Over beta: 0.1, 5.",
	} {
		if !strings.HasSuffix(captions[file], end) {
			t.Errorf("%s has the caption %q, want %q at the end", file, captions[file], end)
		}
	}
	if _, ok := got["accuracy"]; ok {
		t.Errorf("a figure of both evaluations: %v", got)
	}
	v.Select(results.PersonalView)
	for f, want := range map[configs.Figure]string{
		{Kind: "curves", Line: "method", Panel: "beta"}: "personal evaluation; ± sample deviation, n = 2 seeds",
		{Kind: "heatmap", X: "beta", Y: "method"}:       "personal evaluation",
		{Kind: "sensitivity", X: "beta"}: "personal evaluation; ± sample deviation, n = 2 seeds; averaged " +
			"over method: A, B",
		{Kind: "cost"}:    "averaged over beta: 0.1, 5",
		{Kind: "bubbles"}: "",
	} {
		if got := v.caption(f, v.metric).String(); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
	if list := v.each(v.metric); len(list) != 1 || !strings.HasPrefix(list[0].Name, "last") {
		t.Errorf("runs of one evaluation have figures of %v", list)
	}
	for r := range results.Runs(v.groups[2:]) { // of B
		r.State = results.Running
	}
	if got := v.caption(configs.Figure{Kind: "curves"}, v.metric).open; got != "not finished: B" {
		t.Errorf("a figure with running runs says %q", got)
	}
}

// A metric that no run has would be missing in a table of metrics without a word. No work begins after a signal.
func TestAskedMetric(t *testing.T) {
	r := contested(t, 2).Report
	r.Metric = "hm"
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.build(ctx); !errors.Is(err, context.Canceled) || !slices.Contains(r.Notes,
		"grid: no finished run has hm") {
		t.Errorf("notes %q, %v", r.Notes, err)
	}
	r.Metric, r.Groups[0].Runs[0].EvalLast, r.Groups[1].Runs[0].EvalLast = "", 1, 5
	if err := r.build(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	goldentest.Contains(t, strings.Join(r.Notes, "\n"), "grid: eval.last and eval.select make last and last5 the "+
		"results of runs: last is shown")
}

// TestCurvesAlong: in four rounds A sends 1 MB per round and B 200 MB, so that bytes have a logarithmic axis. Their
// rounds take 10 and 20 simulated seconds. C sends nothing and has no simulated time.
func TestCurvesAlong(t *testing.T) {
	var groups []*results.Group
	for i, name := range []string{"A", "B", "C"} {
		var lines strings.Builder
		for round := range 4 {
			e := fmt.Sprintf(`{"accuracy": 0.%d}`, round+1)
			fmt.Fprintf(&lines, `{"format":2,"round":%d, "tested": true, "accuracy": 0.%d, "view": "global",
				"evaluations": {"global": %s}, "bytes_up": %d`, round, round+1, e, []int{400_000, 80_000_000, 0}[i])
			fmt.Fprintf(&lines, `, "bytes_down": %d`, []int{600_000, 120_000_000, 0}[i])
			if i < 2 {
				fmt.Fprintf(&lines, `, "simulated": {"seconds": %d}`, 10*(i+1)*(round+1))
			}
			lines.WriteString("}\n")
		}
		text := strings.ReplaceAll(lines.String(), "\n\t\t\t\t", " ")
		rounds, err := results.ReadRounds(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, &results.Group{Name: name, Labels: map[string]string{"method": name},
			Runs: []*results.Run{{Seed: 1, State: results.Done, Rounds: rounds}}})
	}
	m := last(t)
	v := &view{Report: &Report{Results: &results.Results{Groups: groups}}, groups: groups, metric: m, axis: "method"}
	for along, want := range map[string][][]float64{
		"":      {{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}},
		"round": {{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}},
		"bytes": {{1e6, 2e6, 3e6, 4e6}, {2e8, 4e8, 6e8, 8e8}},
		"time":  {{10, 20, 30, 40}, {20, 40, 60, 80}},
	} {
		d, err := v.curves(configs.Figure{Kind: "curves", X: along}, m)
		if err != nil {
			t.Fatal(err)
		}
		c := d.(figures.Curves)
		if len(c.Panels) != 1 || len(c.Panels[0].Lines) != len(want) || c.Panels[0].X.Log != (along == "bytes") {
			t.Fatalf("%q: %+v", along, c.Panels)
		}
		for i, l := range c.Panels[0].Lines {
			if !slices.EqualFunc(l.X, want[i], func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) ||
				math.Abs(l.Y[3]-40) > 1e-9 {
				t.Errorf("%q: line %s goes through %v, %v; want x %v", along, l.Label, l.X, l.Y, want[i])
			}
		}
	}
}

// TestFacetTitles: panels and lines with numbers as labels show the name of their axis, like heads of tables.
func TestFacetTitles(t *testing.T) {
	v := contested(t, 2)
	d, err := v.curves(configs.Figure{Line: "method", Panel: "beta"}, v.metric.InEvaluation(results.PersonalView))
	if err != nil {
		t.Fatal(err)
	}
	c := d.(figures.Curves)
	if len(c.Panels) != 2 || c.Panels[0].Title != "beta 0.1" || c.Panels[1].Title != "beta 5" ||
		c.Panels[0].Lines[0].Label != "A" {
		t.Errorf("%+v", c.Panels)
	}
}

// TestColours: a label has the colour of its method, whose index is the index in the page's list. This holds for the
// raw label and for the label with its axis, which figures display for numbers. A label of two methods has none of
// their colours.
func TestColours(t *testing.T) {
	var groups []*results.Group
	for _, g := range [][3]string{{"a", "1", "CoOp"}, {"b", "L2 CoOp", "L2 CoOp"}, {"c", "both", "CoOp"},
		{"d", "both", "L2 CoOp"}} {
		groups = append(groups, &results.Group{Name: g[0], Labels: map[string]string{"kind": g[1]},
			Runs: []*results.Run{{Method: g[2]}}})
	}
	v := &view{Report: &Report{Results: &results.Results{Groups: groups}}, groups: groups}
	got := v.colours("kind")
	want := figures.Colours{"1": 0, "kind 1": 0, "L2 CoOp": 1, "kind L2 CoOp": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("colours %v, want %v", got, want)
	}
	for i, m := range v.methods() {
		if got[m] != i && m == "L2 CoOp" || figures.MethodColours(v.methods())[m] != i {
			t.Errorf("%s has place %d in the page and %d in figures", m, i, got[m])
		}
	}
}

// Every kind of figure has a name and draws.
func TestKindsOfFigures(t *testing.T) {
	for kind, p := range kinds {
		if kind == "" || p.draw == nil {
			t.Errorf("%q is a kind of %+v", kind, p.part)
		}
	}
}
