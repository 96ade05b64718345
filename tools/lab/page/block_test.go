package page

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/federation/experiment"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
)

// A run without rounds, settings and clients, and a report without anything, have lists without elements: the script
// reads the length of each.
func TestListsAreNeverNull(t *testing.T) {
	for _, r := range []Report{{}, {Runs: []Run{{Curves: []Curve{{}}}}}} {
		b, _ := newBlock(r)
		got := goldentest.JSON(t, b)
		for _, key := range regexp.MustCompile(`"(\w+)":null`).FindAllStringSubmatch(string(got), -1) {
			t.Errorf("%s is null in %s", key[1], got)
		}
	}
}

func TestBlockShares(t *testing.T) {
	run := func(name, group string, values ...float64) Run {
		return Run{RunJSON: results.RunJSON{Folder: name, Seed: 1<<53 + 1}, Name: name, Group: group, Experiment: group,
			Clients: &experiment.Clients{Classes: []string{"x", "y", "z"}, Clients: []experiment.ClientInfo{
				{Domain: "a", Train: []int{3, 0, 2}}, {Domain: "b", Train: []int{0, 0, 7}, Test: []int{0, 0, 0}}}},
			Curves: []Curve{{Metric: "accuracy", Rounds: []int{0, 5}, Values: values}},
			PerClient: &ClientCurves{Metric: "accuracy", Rounds: []int{0, 5}, Values: []results.Numbers{{1, 3},
				{2, 4}}}}
	}
	r := Report{Metrics: []Metric{{Name: "accuracy", Unit: "%"}}, Runs: []Run{run("p1", "p", 1, 2), run("q", "q", 5,
		6), run("p2", "p", 3, 6)}}
	b, left := newBlock(r)
	if len(left) != 0 {
		t.Fatal(left)
	}
	got := goldentest.JSON(t, b.Runs[:1])
	const want = `[{"folder":"p1","state":"","rounds":0,"name":"p1","group":"p","experiment":"p",` +
		`"method":"","sweep":"","planned":0,"tags":[],"labels":{},` +
		`"curves":[{"metric":"accuracy","x":[0,5],"y":[1,2]}],` +
		`"clients":{"metric":"accuracy","x":[0,5],"y":[[1,3],[2,4]]},"seed":"9007199254740993","settings":[],"part":0}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const parts = `[{"classes":["x","y","z"],"clients":[{"backbone":"","domain":"a","train":[3,0,2],"val":null,` +
		`"test":null},{"backbone":"","domain":"b","train":[0,0,7],"val":null,"test":[0,0,0]}]}]`
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
	pc := &ClientCurves{Metric: "loss", Rounds: rounds[:500]}
	for range 1000 {
		pc.Values = append(pc.Values, make(results.Numbers, 500))
	}
	for i := range 25 {
		run := Run{Name: strings.Repeat("r", i+1), Curves: []Curve{{Metric: "loss", Rounds: rounds, Values: values}},
			Clients: &experiment.Clients{}}
		if i < 3 {
			run.PerClient = pc
			run.Details = make(json.RawMessage, []int{maxDetails + 1, maxDetails, 1}[i])
		}
		for k := range 1000 {
			run.Clients.Clients = append(run.Clients.Clients, experiment.ClientInfo{Train: []int{i + 1, k},
				Test: make([]int, 38)})
		}
		r.Runs = append(r.Runs, run)
	}
	b, left := newBlock(r)
	// 25 x 50,000 numbers are 2.08 times the limit, so every third round stays: 16,667 of 0, 3, ... 49,998, and the
	// last one. Two runs of 500,000 client numbers fit. 800,000 numbers of examples are 20 partitions of 40,000.
	if x := b.Runs[0].Curves[0].Rounds; len(x) != 16_668 || x[len(x)-1] != 49_999 {
		t.Errorf("a curve has %d rounds", len(x))
	}
	if b.Runs[1].PerClient == nil || b.Runs[2].PerClient != nil {
		t.Error("the clients' curves are not those of the first two runs")
	}
	if b.Runs[0].Details != nil || b.Runs[1].Details == nil || b.Runs[2].Details != nil {
		t.Error("the details are not those of the second run, which are as large as the limit")
	}
	if len(b.Parts) != 20 || b.Runs[24].Part != -1 {
		t.Errorf("%d partitions", len(b.Parts))
	}
	want := []string{"The curves show one round in 3: all of them would make the page too large.",
		"The lines of single clients of 1 of 25 runs are left out, to keep the page small.",
		"The partitions of 5 of 25 runs are left out, to keep the page small.",
		"The configurations, logs and other details of 2 of 25 runs are left out, to keep the page small."}
	if d := cmp.Diff(want, left); d != "" {
		t.Error(d)
	}
}
