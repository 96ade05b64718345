package report

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/runtime/filetest"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
	"promptfed/tools/promptfed/runfolder"
)

// Another seed may assign another backbone to a client number. With one seed, clients 0, 1 and 2 have the backbones x,
// x and y and accuracies of 10, 20 and 90. With the other seed they have y, x and x, and 80, 40 and 30. As x, client 0
// has 10, client 1 (20 + 40)/2 and client 2 30; as y, client 0 has 80 and client 2 90.
func TestStripsAcrossSeeds(t *testing.T) {
	group := &results.Group{Name: "A", Labels: map[string]string{"method": "A"}}
	for seed, run := range []struct {
		backbones [3]string
		accuracy  []float64
	}{{[3]string{"x", "x", "y"}, []float64{.1, .2, .9}}, {[3]string{"y", "x", "x"}, []float64{.8, .4, .3}}} {
		dir, text := t.TempDir(), `{"classes": [], "clients": [`
		for k, b := range run.backbones {
			text += fmt.Sprintf(`%s{"backbone": %q}`, []string{"", ", ", ", "}[k], b)
		}
		filetest.Write(t, filepath.Join(dir, runfolder.ClientsFile), text+"]}")
		e := &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: .5}, PerClient: run.accuracy}
		group.Runs = append(group.Runs, &results.Run{Dir: dir, Seed: uint64(seed), State: results.Done,
			Rounds: []results.Round{{Record: record.Record{Tested: true, Evaluation: e}}}})
	}
	m := last(t)
	v := &view{Report: &Report{Results: &results.Results{}}, groups: []*results.Group{group}, metric: m, axis: "method"}
	drawn, err := v.strips(configs.Figure{Kind: "strips"}, m)
	if err != nil {
		t.Fatal(err)
	}
	want := []figures.StripGroup{{Label: "x", Values: []float64{10, 30, 30}}, {Label: "y", Values: []float64{80, 90}}}
	panels := drawn.(figures.Strips).Panels
	if len(panels) != 1 || !slices.EqualFunc(panels[0].Groups, want, func(a, b figures.StripGroup) bool {
		return a.Label == b.Label && slices.EqualFunc(a.Values, b.Values,
			func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	}) {
		t.Errorf("%+v, want %+v", panels, want)
	}
}
