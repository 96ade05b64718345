package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/methodtest"
	"promptfed/runtime/tensor"
)

// fineTuned runs PromptFL on some clients in a fixed order of examples, fine-tuned for some epochs. Traces have the
// scores of the headline, which is personal.
func fineTuned(t *testing.T, with []string, epochs, rounds int, share float64, sizes ...int) (*engine.Result,
	tensor.Map) {
	e := withMethod(buildMethod(t, "promptfl", with, map[string]any{"tokens": 2}))
	e.Plan.View = "personal"
	e.Clients = methodtest.ClientsOfOneBackbone(sizes...)
	for _, c := range e.Clients {
		c.Train = methodtest.InOrder{Features: c.Train.(*spec.Features)}
	}
	e.Plan.Rounds, e.Plan.Participation, e.Training.FineTune = rounds, share, epochs
	e.Training.Optim.Momentum = 0.9
	rec := trace.NewRecorder()
	return mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}}), rec.Tensors
}

// In a federation of one client, fine-tuning for as many epochs as a round has equals the client's next round, also
// where that ends with a model of the client's own. The rounds themselves do not change.
func TestFineTuningIsAnotherRound(t *testing.T) {
	for _, with := range [][]string{nil, {"ditto"}, {"apfl"}} {
		_, bare := fineTuned(t, with, 0, 3, 1, 9)
		_, ahead := fineTuned(t, with, 1, 2, 1, 9)
		for round, next := range []string{"r1", "r2"} {
			at := []string{"r0", "r1"}[round]
			got, want := ahead[at+"/c0/eval/logits"].Data, bare[next+"/c0/eval/logits"].Data
			if !slices.Equal(got, want) {
				t.Errorf("%v: %s is tested with %v, the next round ends with %v", with, at, got[:4], want[:4])
			}
		}
		if slices.Equal(ahead["r0/c0/eval/logits"].Data, bare["r0/c0/eval/logits"].Data) {
			t.Errorf("%v: fine-tuning changes no score", with)
		}
		for name, v := range ahead {
			if !strings.Contains(name, "/eval/") && !slices.Equal(v.Data, bare[name].Data) {
				t.Errorf("%v: %s is another with fine-tuning", with, name)
			}
		}
	}
}

// Clients that never trained are fine-tuned too, also with several clients in a run and with encoded messages.
func TestFineTuningIsForEveryClient(t *testing.T) {
	one, _ := fineTuned(t, nil, 2, 1, 0.25, 9, 5, 6, 3)
	m := buildMethod(t, "promptfl", nil, map[string]any{"tokens": 2})
	for _, r := range one.Records {
		if u := r.Untrained; u != 0 {
			t.Errorf("%d clients are said to be untrained", u)
		}
	}
	run := func(batch int, encode bool) string {
		e := withMethod(m)
		e.Clients, e.Plan.Rounds, e.Plan.Participation = methodtest.ClientsOfOneBackbone(9, 5, 6, 3), 2, 0.5
		e.Training.FineTune, e.BatchClients = 2, batch
		r := mustRun(t, e, engine.Settings{Encode: encode, Workers: 2})
		global, own := r.Records[1].Evaluations.Global, r.Records[1].Evaluations.Personal
		return fmt.Sprint(global.PerClient, global.Values[metrics.ECE], own.PerClient, own.Values[metrics.ECE])
	}
	plain := run(1, false)
	if got := run(1, true); got != plain {
		t.Errorf("encoded messages give\n%s\n%s", got, plain)
	}
	if got := run(3, false); got != plain {
		t.Errorf("clients in one run give\n%s\n%s", got, plain)
	}
}
