package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/nettest"
	"promptfed/runtime/filetest"
)

// The same experiment gives the same bytes and the same records in one process, through encoded messages, and over the
// network.
func TestSameBytes(t *testing.T) {
	for _, s := range []nettest.Stack{
		nettest.Method("promptfl", nil, map[string]any{"tokens": 2}),
		nettest.FedPHA,
		nettest.Method("fedappr", nil, nil),
		nettest.Method("promptfl", []string{"scaffold", "ggtpc"}, nil),
		nettest.Method("pfeddc", nil, nil),
		nettest.Method("promptfl", []string{"compress"}, map[string]any{"tokens": 2, "share": 0.3}),
	} {
		t.Run(s.Method, func(t *testing.T) {
			want, records := simulated(t, s.Experiment(t), false)
			loop, _ := simulated(t, s.Experiment(t), true)
			site := newSite(t, s.Experiment(t))
			site.run()
			if t.Failed() {
				return
			}
			if got := site.learned(); got != want || loop != want {
				t.Error("other bytes than in one process")
			}
			if got := site.records(); got != records {
				t.Errorf("other records than in one process:\n%s\n%s", got, records)
			}
		})
	}
}

// Rounds and the confusion matrix are those of one process, with validation data of some clients, early stopping, a
// client that never trains, and counts of classes.
func TestSameEvaluations(t *testing.T) {
	toy := func() *spec.Experiment {
		e := nettest.FedPHA.Experiment(t)
		for _, k := range []int{0, 2} {
			e.Clients[k].Val = methodtest.Rows(400+k, 5, e.Clients[k].Backbone.Task().Dim, len(e.Classes))
		}
		e.Plan.Trainers, e.Plan.New = []int{0, 2, 3}, []int{1}
		e.Evaluate = record.TestPlan{Validate: true, Patience: 2, NewSteps: []int{0, 3}, Confusion: true}
		return e
	}
	dir := t.TempDir()
	r := enginetest.Run(t, toy(), engine.Settings{Dir: dir})
	site := newSite(t, toy())
	site.run()
	if t.Failed() {
		return
	}
	if got, want := site.records(), nettest.WithoutTimes(t, r.Records); got != want {
		t.Errorf("other records than in one process:\n%s\n%s", got, want)
	}
	read := func(dir string) string {
		b := filetest.Read(t, filepath.Join(dir, record.ConfusionFile))
		_, counts, _ := strings.Cut(string(b), `"clients"`)
		return counts
	}
	if got, want := read(site.dir), read(dir); got != want {
		t.Errorf("the confusion matrix is %s, in one process %s", got, want)
	}
	if last := r.Records[len(r.Records)-1]; len(last.Validation.Clients) != 2 ||
		last.NewClients["3"].Evaluation == nil {
		t.Errorf("the experiment does not cover this: %+v", last)
	}
}
