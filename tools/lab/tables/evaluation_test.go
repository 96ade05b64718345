package tables

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
)

// tested returns a finished run with global and personal accuracies in its single round; a negative accuracy means that
// the method lacks the evaluation. view is the evaluation in the method's paper.
func tested(seed uint64, view string, global, personal float64) *results.Run {
	e := record.Evaluations{}
	if global >= 0 {
		e.Global = &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: global}}
	}
	if personal >= 0 {
		e.Personal = &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: personal}}
	}
	r := &results.Run{Seed: seed, State: results.Done, Rounds: []results.Round{{Record: record.Record{Tested: true,
		Evaluations: e}}}}
	r.Summary.MethodView = view
	return r
}

// field returns a grid of three methods: one tested globally, one tested personally that has both evaluations, and one
// without a global evaluation.
func field(view string, betas ...string) []*results.Group {
	p := &results.Plan{Plan: configs.Plan{Name: "grid", Axes: []results.Axis{{Name: "method", Labels: []string{"Avg",
		"Pers", "Local"}}, {Name: "beta", Labels: betas}}}}
	var out []*results.Group
	for i, method := range p.Axes[0].Labels {
		for _, beta := range betas {
			r := []*results.Run{tested(1, "global", .464, .844), tested(1, "personal", .44, .84), tested(1, "personal",
				-1, .868)}[i]
			out = append(out, &results.Group{Name: method, Plan: p, Labels: map[string]string{"method": method,
				"beta": beta}, Runs: []*results.Run{r}})
		}
	}
	(&results.Results{Groups: out}).Select(view)
	return out
}

func built(t *testing.T, groups []*results.Group, l Layout) (*Table, map[string]string) {
	t.Helper()
	tab, err := Build(groups, l)
	if err != nil {
		t.Fatal(err)
	}
	var md, tex, csv strings.Builder
	for _, err := range []error{Markdown(&md, tab), LaTeX(&tex, tab), CSV(&csv, tab)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return tab, map[string]string{"terminal": tab.Terminal(whole), "Markdown": md.String(), "LaTeX": tex.String(),
		"CSV": csv.String()}
}

// TestOneEvaluation: a table of one evaluation states it, and has a hyphen for a method without it, in every format.
func TestOneEvaluation(t *testing.T) {
	_, forms := built(t, field(results.GlobalView, "0.1"), Layout{Rows: []string{"method"}, Columns: []string{"beta"}})
	for form, line := range map[string]string{"terminal": "Local            -", "Markdown": "| Local | - |",
		"LaTeX": `Local & - \\`, "CSV": ",Local,0.1,last,global,%,-,"} {
		if !strings.Contains(forms[form], line) {
			t.Errorf("%s has no %q:\n%s", form, line, forms[form])
		}
		if form != "CSV" && !strings.Contains(forms[form], "Evaluation: global, every client with the parameters "+
			"that the server sends.") {
			t.Errorf("%s does not say which evaluation it is of:\n%s", form, forms[form])
		}
	}
	_, forms = built(t, field(results.PersonalView, "0.1"), Layout{Rows: []string{"method"}, Columns: []string{"beta"}})
	goldentest.Contains(t, forms["Markdown"], "**86.80**", "Evaluation: personal,", "| Avg | 84.40 |")
}

// TestBoldStaysWithin: if each method is tested as in its paper, every row names its evaluation and each evaluation has
// its own best. The globally tested method, alone in its evaluation, does not lose against methods in the other.
func TestBoldStaysWithin(t *testing.T) {
	tab, forms := built(t, field(record.MethodView, "0.1"), Layout{Rows: []string{"method"}, Columns: []string{"beta"}})
	goldentest.Contains(t, forms["Markdown"], "| method | evaluation | beta = 0.1 |", "| Avg | global | 46.40 |",
		"| Pers | personal | 84.00 |", "| Local | personal | **86.80** |", "no best is marked across them")
	if strings.Count(forms["terminal"], "*8") != 1 || !strings.Contains(tab.Legend.Best,
		"among those of one evaluation") {
		t.Errorf("%s", forms["terminal"])
	}
	// If methods are in columns, columns name the evaluation. There is no mean over methods with different evaluations.
	tab, forms = built(t, field(record.MethodView, "0.1", "5"), Layout{Rows: []string{"beta"},
		Columns: []string{"method"}, Average: "row"})
	if got := strings.Join(tab.Heads(), "|"); got != "beta|Avg, global|Pers, personal|Local, personal|Average" {
		t.Errorf("heads %s", got)
	}
	if !strings.Contains(forms["terminal"], "there is no mean over global and personal evaluations") {
		t.Errorf("a mean over both:\n%s", forms["terminal"])
	}
	tab, _ = built(t, field(record.MethodView, "0.1", "5"), Layout{Rows: []string{"beta"}})
	if c := tab.Rows[0].Cells[0]; c.Stat.N() != 0 || c.Mark == 0 {
		t.Errorf("a mean over methods of both evaluations: %+v", c)
	}
}

// TestBoldNeedsOneTest: only runs on the same data have a best.
func TestBoldNeedsOneTest(t *testing.T) {
	for _, c := range []struct {
		data string
		bold int
	}{{"flowers", 1}, {"pets", 0}} {
		groups := []*results.Group{{Name: "a", Labels: map[string]string{"run": "a"}, Runs: []*results.Run{tested(1,
			"personal", -1, .5)}},
			{Name: "b", Labels: map[string]string{"run": "b"}, Runs: []*results.Run{tested(1, "personal", -1, .75)}}}
		(&results.Results{Groups: groups}).Select(record.MethodView)
		groups[0].Runs[0].TestData, groups[1].Runs[0].TestData = "flowers", c.data
		_, forms := built(t, groups, Layout{Rows: []string{"run"}, Columns: []string{MetricAxis},
			Metrics: []string{"last"}})
		if got := strings.Count(forms["Markdown"], "**"); got != 2*c.bold ||
			strings.Contains(forms["Markdown"], "do not all have the same data") != (c.bold == 0) {
			t.Errorf("runs on flowers and %s:\n%s", c.data, forms["Markdown"])
		}
	}
}

// TestHeads: a number in a column head has the name of its axis; a word does not.
func TestHeads(t *testing.T) {
	tab, forms := built(t, field(results.PersonalView, "0.1", "5"), Layout{Rows: []string{"method"},
		Columns: []string{"beta"}, Average: "row"})
	if got := strings.Join(tab.Heads(), "|"); got != "method|beta = 0.1|beta = 5|Average" ||
		!strings.Contains(forms["LaTeX"], "beta = 0.1 & beta = 5 & Average") {
		t.Errorf("heads %s\n%s", got, forms["LaTeX"])
	}
	tab, _ = built(t, field(results.PersonalView, "low", "high"), Layout{Rows: []string{"method"},
		Columns: []string{"beta"}})
	if got := strings.Join(tab.Heads(), "|"); got != "method|low|high" {
		t.Errorf("heads %s", got)
	}
}

// TestWhatNumbersRestOn: the caption states tests that some client did not answer, clients that never trained, and
// private parameters in a global evaluation.
func TestWhatNumbersRestOn(t *testing.T) {
	groups := field(results.GlobalView, "0.1")
	r := groups[0].Runs[0]
	r.Rounds[0].Unanswered, r.Rounds[0].Answered = []int{3}, []int{0, 1, 2}
	r.Rounds[0].EvaluationSets = map[string]record.SetResult{"new": {Unanswered: []int{0, 2}}}
	r.Summary.Reads = []string{record.ReadsPrivate, record.ReadsShared}
	groups[1].Runs[0].Summary.Untrained = 2
	_, forms := built(t, groups, Layout{Rows: []string{"method"}, Columns: []string{"beta"}})
	goldentest.Contains(t, forms["terminal"],
		"2 tests were not answered by all clients: Avg, seed 1: no answer to the test of "+
			"round 1 from client 3: means are over the others; "+
			"Avg, seed 1: no answer to evaluation set new of round 1 from clients 0, 2: means are over the others.",
		"The global evaluation also uses private parameters or examples of each client: Avg.")
	if strings.Contains(forms["terminal"], "never trained") {
		t.Errorf("a global table speaks of personal parameters:\n%s", forms["terminal"])
	}
	(&results.Results{Groups: groups}).Select(results.PersonalView)
	_, forms = built(t, groups, Layout{Rows: []string{"method"}, Columns: []string{"beta"}})
	if !strings.Contains(forms["terminal"], "initial values of private ones: Pers 2.") ||
		strings.Contains(forms["terminal"], "The global evaluation") {
		t.Errorf("%s", forms["terminal"])
	}
}

// TestPaperEvaluation: a paper's table has both of our evaluations, and the printed number beside its own: as stated by
// the card (Pers, though the method's own paper differs), else as in the method's own paper, which the caption states.
func TestPaperEvaluation(t *testing.T) {
	groups := field(record.MethodView, "0.1")
	groups[2].Plan.Card = &configs.PaperTable{}
	if err := json.Unmarshal([]byte(`{"paper":"X","item":"Table 1",
		"views":{"default":"unsaid","by":"method","labels":{"Pers":"global"},"why":"section 4"},
		"numbers":{"by":["method","beta"],"values":{"Avg":{"0.1":46},"Pers":{"0.1":45},"Local":{"0.1":86}}}}`),
		groups[2].Plan.Card); err != nil {
		t.Fatal(err)
	}
	l := Layout{Rows: []string{"method", EvaluationAxis}, Columns: []string{"beta"}, Card: groups[2].Plan.Card}
	_, forms := built(t, groups, l)
	goldentest.Contains(t, forms["Markdown"], "| Avg | global | **46.40** (46, +0.40) |", "| Avg | personal | 84.40 |",
		"| Pers | global | 44.00 (45, −1.00) |",
		"| Pers | personal | 84.00 |", "| Local | global | - |", "| Local | personal | **86.80** (86, +0.80) |",
		"The paper does not say which evaluation its numbers are (Avg; Local); they are shown")
	// In a table of one evaluation, the difference from a number of the other evaluation has no meaning.
	(&results.Results{Groups: groups}).Select(results.PersonalView)
	l.Rows = l.Rows[:1]
	_, forms = built(t, groups, l)
	goldentest.Contains(t, forms["Markdown"], "| Avg | 84.40 (46) |", "| Pers | 84.00 (45) |",
		"| Local | **86.80** (86, +0.80) |", "no difference is shown: Avg global; Pers global.")
	if _, err := Build(groups, Layout{Rows: []string{"method"}, Columns: []string{"nothing"}}); err == nil ||
		!strings.Contains(fmt.Sprint(err), EvaluationAxis) {
		t.Errorf("%v", err)
	}
}

// TestGridOfEvaluations: a grid that trains once for each eval.view has its own axis of evaluations. A column of
// methods with different tests marks each cell, and the CSV keeps the axis.
func TestGridOfEvaluations(t *testing.T) {
	p := &results.Plan{Plan: configs.Plan{Axes: []results.Axis{{Name: "method", Labels: []string{"Avg", "Pers"}},
		{Name: EvaluationAxis, Labels: []string{"as published", "personal"}}}}}
	var groups []*results.Group
	for i, method := range p.Axes[0].Labels {
		for _, label := range p.Axes[1].Labels {
			g := &results.Group{Plan: p, Labels: map[string]string{"method": method, EvaluationAxis: label}}
			g.Runs = []*results.Run{tested(1, []string{"global", "personal"}[i], .5+float64(i)/10, .7+float64(i)/10)}
			view := record.MethodView
			if label == "personal" {
				view = label
			}
			(&results.Results{Groups: []*results.Group{g}}).Select(view)
			groups = append(groups, g)
		}
	}
	_, forms := built(t, groups, Layout{Rows: []string{"method"}, Columns: []string{EvaluationAxis}})
	goldentest.Contains(t, forms["Markdown"], "| Avg | 50.00 \\[1\\] | 70.00 \\[2\\] |",
		"| Pers | 80.00 \\[2\\] | **80.00** \\[2\\] |", "\\[1\\] global evaluation", "\\[2\\] personal evaluation")
	goldentest.Contains(t, forms["CSV"],
		"table,method,evaluation,metric,view,unit,", ",Avg,as published,last,global,%,50,")
}
