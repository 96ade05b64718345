package page

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumbers(t *testing.T) {
	nan := math.NaN()
	got, err := json.Marshal(numbers{83.12345, 100, 0.000123456, nan, -2.5, 12345678, 99995, math.Inf(1), 1e20, 0})
	if err != nil {
		t.Fatal(err)
	}
	// Four significant digits, computed by hand; 99995 rounds up to five digits.
	const want = `[83.12,100,0.0001235,null,-2.5,12350000,100000,null,1e+20,0]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A run without rounds, settings and clients, and a report without anything, have lists without elements: the script
// reads the length of each.
func TestListsAreNeverNull(t *testing.T) {
	for _, r := range []Report{{}, {Runs: []Run{{Name: "a", Confusion: &Confusion{}, Terms: []Term{{}},
		Clients: []Client{{}}}}}} {
		b, _, err := newBlock(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range regexp.MustCompile(`"(\w+)":null`).FindAllStringSubmatch(string(got), -1) {
			if k := key[1]; k != "global" && k != "personal" { // an evaluation that does not exist
				t.Errorf("%s is null in %s", k, got)
			}
		}
	}
}

func TestBlockSharesAndSums(t *testing.T) {
	clients := []Client{{Domain: "a", Train: []int{3, 0, 2}}, {Domain: "b", Train: []int{0, 0, 7}, Test: []int{0, 0,
		0}}}
	run := func(name, group string, values ...float64) Run {
		return Run{Name: name, Group: group, Experiment: group, Classes: []string{"x", "y", "z"}, Clients: clients,
			Curves:    []Curve{{Metric: "accuracy", Rounds: []int{0, 5}, Values: values}},
			PerClient: &ClientCurves{Metric: "accuracy", Rounds: []int{0, 5}, Values: [][]float64{{1, 2}, {3, 4}}}}
	}
	r := Report{Metrics: []Metric{{Name: "accuracy", Unit: "%"}}, Runs: []Run{run("p1", "p", 1, 2), run("q", "", 5, 6),
		run("p2", "p", 3, 6)}}
	b, left, err := newBlock(r)
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	got, err := json.Marshal(b.Runs[:1])
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"id":"p1","name":"p1","group":"p","experiment":"p","method":"","sweep":"","seed":0,` +
		`"state":"","why":"",` +
		`"planned":0,"tags":[],"labels":{},"settings":[],"x":[[0,5]],"curves":[{"m":0,"x":0,"y":[1,2]}],` +
		`"clients":{"m":0,"x":0,"y":[[1,3],[2,4]]},"part":0,` +
		`"details":{"facts":[],"config":[],"log":[],"confusion":null,"terms":[]}}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const parts = `[{"classes":["x","y","z"],"clients":[{"b":"","d":"a","n":[[0,3,2,2],null,null]},` +
		`{"b":"","d":"b","n":[[2,7],null,[]]}]}]`
	if got, err := json.Marshal(b.Parts); err != nil || string(got) != parts {
		t.Errorf("got  %s, %v\nwant %s", got, err, parts)
	}
}

func TestLimits(t *testing.T) {
	r := Report{Metrics: []Metric{{Name: "loss"}}}
	rounds, values := make([]int, 50_000), make([]float64, 50_000)
	for i := range rounds {
		rounds[i] = i
	}
	pc := &ClientCurves{Metric: "loss"}
	for k := range 500 {
		pc.Rounds, pc.Values = append(pc.Rounds, k), append(pc.Values, make([]float64, 1000))
	}
	for i := range 25 {
		run := Run{Name: strings.Repeat("r", i+1), Curves: []Curve{{Metric: "loss", Rounds: rounds, Values: values}},
			Classes: make([]string, 100)}
		if i < 3 {
			run.PerClient = pc
		}
		for k := range 1000 {
			run.Clients = append(run.Clients, Client{Train: []int{i + 1, k, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
				1, 1, 1}})
		}
		r.Runs = append(r.Runs, run)
	}
	b, left, err := newBlock(r)
	if err != nil {
		t.Fatal(err)
	}
	// 25 x 50,000 numbers are 2.08 times the limit, so every third round stays: 16,667 of 0, 3, ... 49,998, and the
	// last one. Two runs of 500,000 client numbers fit. 800,000 entries hold exactly 20 partitions of slightly less
	// than 40,000.
	if x := b.Runs[0].X[0]; len(x) != 16_668 || x[len(x)-1] != 49_999 {
		t.Errorf("a curve has %d rounds", len(x))
	}
	if b.Runs[1].Clients == nil || b.Runs[2].Clients != nil {
		t.Error("the clients' curves are not those of the first two runs")
	}
	if len(b.Parts) != 20 || b.Runs[24].Part != -1 {
		t.Errorf("%d partitions", len(b.Parts))
	}
	want := []string{"The curves show one round in 3: all of them would make the page too large.",
		"The lines of single clients of 1 of 25 runs are left out, to keep the page small.",
		"The partitions of 5 of 25 runs are left out, to keep the page small."}
	if d := cmp.Diff(want, left); d != "" {
		t.Error(d)
	}
}

func TestErrors(t *testing.T) {
	good := func() Report {
		return Report{Title: "t", Metrics: []Metric{{Name: "loss"}}, Runs: []Run{{Name: "r", Classes: []string{"x"},
			Clients:   []Client{{Train: []int{1}}},
			Curves:    []Curve{{Metric: "loss", Rounds: []int{0, 1}, Values: []float64{1, 2}}},
			PerClient: &ClientCurves{Metric: "loss", Rounds: []int{0, 1}, Values: [][]float64{{1}, {2}}}}}}
	}
	for want, spoil := range map[string]func(*Report){
		"":                                 func(*Report) {},
		`metric "loss" is listed twice`:    func(r *Report) { r.Metrics = append(r.Metrics, r.Metrics[0]) },
		`run r: a curve is of "gain"`:      func(r *Report) { r.Runs[0].Curves[0].Metric = "gain" },
		"1 values for 2 rounds":            func(r *Report) { r.Runs[0].Curves[0].Values = []float64{1} },
		"or its rounds do not rise":        func(r *Report) { r.Runs[0].Curves[0].Rounds = []int{1, 0} },
		"1 rows of values for 2 rounds":    func(r *Report) { r.Runs[0].PerClient.Values = [][]float64{{1}} },
		"1 clients in one round and 2":     func(r *Report) { r.Runs[0].PerClient.Values[1] = []float64{1, 2} },
		"client 0 has counts of 2 classes": func(r *Report) { r.Runs[0].Clients[0].Test = []int{1, 2} },
		`table "T": row 0 has 1 cells for 0`: func(r *Report) {
			r.Tables = []Table{{Title: "T",
				Rows: []Row{{Cells: []Cell{{}}}}}}
		},
	} {
		r := good()
		spoil(&r)
		_, _, err := newView(r)
		if want == "" {
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got the error %v; want one line with %q", err, want)
		}
	}
}
