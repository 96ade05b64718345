package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// TestForwardPassOnce: four clients on two backbones need two forward passes of the text tower at the server's
// parameters, one for each backbone, in steps of one client and of several. Private prompts (FedPHA) change nothing.
// The worker forgets the passes of the round before. A client with its own initial value (FedAMP) needs none, nor does
// a client whose steps are one graph. Uploads are the same bytes if values stay on a device (here the CPU). No graph is
// optimised: the device's have fixed sizes, and with known sizes ONNX Runtime fuses other operators, which round
// differently on some processors.
func TestForwardPassOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		with   []string
		prefix int
		want   [2]int // by round
	}{
		{"promptfl", nil, 0, [2]int{2, 2}}, {"promptfl", []string{"fedprox", "scaffold"}, 0, [2]int{2, 2}},
		{"fedpha", nil, 0, [2]int{2, 2}}, {"promptfl", []string{"fedamp"}, 0, [2]int{2, 0}},
		{"fedvpt", nil, 0, [2]int{}}, {"promptfl", nil, -1, [2]int{}},
	} {
		m := buildMethod(t, c.name, c.with, nil)
		e := &spec.Experiment{Method: m, Classes: methodtest.Classes, Template: "a {}.", BatchClients: 2,
			Clients: methodtest.Clients(9, 5, 6, 3), Plan: spec.Plan{Rounds: 2, Seed: 5},
			Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1, Momentum: 0.9},
				Schedule: optim.Schedule{Kind: "constant"}}}
		written := ort.Options{OptLevel: ort.OptNone}
		w := client.NewWorker(e, client.Settings{PrefixBytes: c.prefix, Session: written})
		written.Bind = true
		bound := client.NewWorker(e, client.Settings{PrefixBytes: c.prefix, Session: written})
		states := make([]message.ClientState, 4)
		for round := range 2 {
			o := message.Instruction{Kind: message.Train, Round: round, Total: 4, Shared: tensor.Map{}}
			for _, client := range e.Clients {
				for _, p := range m.Params(w.Task(client, 4)) {
					if p.Owner == method.Shared {
						o.Shared[p.Name] = method.Draw(uint64(round), 0, p.Name, p.Shape, p.Std)
					}
				}
			}
			groups, err := w.Groups(t.Context(), jobs(e.Clients), 1)
			goldentest.NoError(t, err)
			for _, g := range groups {
				var jobs []client.Job
				for _, i := range g {
					jobs = append(jobs, client.Job{Client: e.Clients[i], Instruction: o,
						State: client.Remembers(states[i])})
				}
				replies, next, err := w.Turns(t.Context(), jobs)
				if err != nil {
					t.Fatalf("%s %v: %v", c.name, c.with, err)
				}
				again, _, err := bound.Turns(t.Context(), jobs)
				if d := cmp.Diff(replies, again); err != nil || d != "" {
					t.Fatalf("%s %v: %v, bound runs differ (-runs +bound):\n%s", c.name, c.with, err, d)
				}
				for k, i := range g {
					states[i] = *next[k]
				}
			}
			for _, w := range []*client.Worker{w, bound} {
				if got := w.InitialValues(); got != c.want[round] {
					t.Errorf("%s %v, round %d: %d forward passes, want %d", c.name, c.with, round, got, c.want[round])
				}
			}
		}
		goldentest.NoError(t, errors.Join(w.Close(), bound.Close()))
	}
}
