package report

import (
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// TestBelowZeroShot: a note names the groups whose mean over runs is below the accuracy of the hand-written prompts.
// This accuracy is a mean over clients: for backbones with one and three clients (0.1 + 3 * 0.4684)/4 = 0.3763. The
// note omits a group above it, a group equal to it up to rounding, and a group without this accuracy.
func TestBelowZeroShot(t *testing.T) {
	hand := []record.ZeroShot{{Backbone: "a", Clients: 1, Mean: 0.1}, {Backbone: "b", Clients: 3, Mean: 0.4684}}
	group := func(name string, hand []record.ZeroShot, accuracies ...float64) *results.Group {
		g := &results.Group{Name: name, Labels: map[string]string{"run": name}}
		for i, a := range accuracies {
			tested := record.Record{Tested: true}
			tested.Evaluations.Global = &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: a}}
			r := &results.Run{Seed: uint64(i + 1), State: results.Done, EvalLast: 1,
				Rounds: []results.Round{{Record: tested}}}
			r.Summary.ZeroShot, r.Summary.MethodView = hand, results.GlobalView
			g.Runs = append(g.Runs, r)
		}
		return g
	}
	note := func(groups ...*results.Group) string {
		found := &results.Results{Groups: groups}
		found.Select(record.MethodView)
		v, main := &view{Report: &Report{Results: found}, groups: groups}, &tables.Table{}
		v.belowZeroShot(main)
		if len(v.Notes) > 1 || len(main.Remarks) != len(v.Notes) {
			t.Errorf("notes %q, remarks %q", v.Notes, main.Remarks)
		}
		return strings.Join(v.Notes, "")
	}
	low, high := group("PromptFL", hand, 0.34, 0.35, 0.351), group("CoOp", hand, 0.3, 0.5, 0.6)
	short := group("short", hand, 0.3)
	short.Runs[0].Identity = &identity.Identity{Values: map[string]string{"options.tokens": "16", "train.lr": "0.02"}}
	for want, groups := range map[string][]*results.Group{
		"PromptFL (34.70 < 37.63) ends below zero-shot on the same test images: try more": {low, high},
		"short (30.00 < 37.63) ends below zero-shot on the same test images: try fewer tokens (options.tokens: 4), " +
			"a lower learning rate (train.lr: 0.005), more": {short},
		"PromptFL (34.70 < 37.63), FedOTP (30.00 < 37.63) end below zero-shot on": {low, high,
			group("FedOTP", hand, .3)},
		"": {high, group("zeroshot", hand, 0.3763-1e-12), group("old", []record.ZeroShot{{Backbone: "a", Accuracy: 1}},
			0.1)},
	} {
		if got := note(groups...); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	many := make([]*results.Group, 9)
	for i := range many {
		many[i] = group(string(rune('a'+i)), hand, 0.2)
	}
	if got := note(many...); !strings.Contains(got, "f (20.00 < 37.63) and 3 more end below") {
		t.Error(got)
	}
}
