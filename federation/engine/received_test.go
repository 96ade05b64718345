package engine_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
)

// TestFirstStepsInTwoGraphs: if the forward pass at the server's parameters is a graph of its own, every number equals
// that of steps in one graph within 1e-6. Clients take 3, 2, 2 and 1 steps, and one answer is lost. Prompts are one or
// several, some of them private (FedPHA, FedOTP), drawn in turn (ProDA) or low-rank changes (FedLoRA). In runs of two
// clients, other numbers of workers change no byte.
func TestFirstStepsInTwoGraphs(t *testing.T) {
	for _, names := range []string{"promptfl", "fedpha", "fedotp", "proda", "fedlora", "prograd", "promptfl+fedprox",
		"promptfl+scaffold", "promptfl+dp", "promptfl+moon", "promptfl+fedamp", "promptfl+robust"} {
		base, with, _ := strings.Cut(names, "+")
		var wrappers []string
		if with != "" {
			wrappers = []string{with}
		}
		m := buildMethod(t, base, wrappers, nil)
		run := func(batch, workers, prefix int) *engine.Result {
			e := withMethod(m)
			e.Clients, e.BatchClients = methodtest.ClientsOfOneBackbone(9, 5, 6, 3), batch
			e.Training.Optim = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9, WeightDecay: 1e-3}
			return mustRun(t, e, engine.Settings{Client: client.Settings{PrefixBytes: prefix}, Workers: workers,
				Wrap: methodtest.LoseReplies(func(round, client int) bool { return round == 0 && client == 1 })})
		}
		want, first := run(1, 1, -1), run(2, 1, 0)
		for what, got := range map[string]*engine.Result{"one client": run(1, 1, 0), "two": first} {
			most := 0.0
			for name, x := range want.Prompts {
				for i, v := range x.Data {
					most = max(most, math.Abs(float64(v-got.Prompts[name].Data[i]))/max(1, x.MaxAbs()))
				}
			}
			if !(most <= 1e-6) {
				t.Errorf("%s, %s in a run: prompts differ by %g", names, what, most)
			}
			for i, r := range got.Records {
				if d := math.Abs(*r.Loss - *want.Records[i].Loss); !(d <= 1e-6*math.Abs(*r.Loss)) {
					t.Errorf("%s, %s in a run, round %d: the loss differs by %g", names, what, i, d)
				}
			}
		}
		again := run(2, 3, 0)
		for name, x := range first.Prompts {
			for i, v := range x.Data {
				if math.Float32bits(v) != math.Float32bits(again.Prompts[name].Data[i]) {
					t.Fatalf("%s: %s differs with three workers", names, name)
				}
			}
		}
	}
}
