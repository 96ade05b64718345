package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// withClientNoise returns an experiment whose clients add noise themselves, and an instruction of its first round.
func withClientNoise(t *testing.T) (*spec.Experiment, message.Instruction) {
	t.Helper()
	m := buildMethod(t, "promptfl", []string{"dp"}, map[string]any{"tokens": 2, "noise": 1.0, "where": "client",
		"delta": 1e-3})
	e := &spec.Experiment{Method: m, Classes: methodtest.Classes, Template: "a {}.",
		Clients: methodtest.ClientsOfOneBackbone(4, 5, 6, 3), Plan: spec.Plan{Rounds: 2, Seed: 5},
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}}}
	return e, message.Instruction{Kind: message.Train, Clients: []int{0}, Total: len(e.Clients),
		Shared:    tensor.Map{"ctx": tensor.New(2, 6)},
		Broadcast: tensor.Map{"dp/clients": tensor.Of([]float32{float32(len(e.Clients))}, 1)}}
}

func alike(a, b *tensor.Tensor) bool { return slices.Equal(a.Data, b.Data) }

// upload returns the upload of client 0, with noise from a key file.
func upload(t *testing.T, path string, change func(o *message.Instruction)) (*tensor.Tensor, error) {
	t.Helper()
	e, o := withClientNoise(t)
	if change != nil {
		change(&o)
	}
	set := client.Settings{}
	if path != "" {
		n, err := noise.Open(path, "run", false)
		goldentest.NoError(t, err)
		set.Noise = func(int) *noise.Noise { return n }
	}
	w := client.NewWorker(e, set)
	defer w.Close()
	r, _, err := w.Execute(context.Background(), e.Clients[0], o, message.ClientState{})
	return r.Upload.Shared["ctx"], err
}

// A client that gets an instruction again, also after a restart, uploads the same bytes: the mean of two draws would
// halve the noise's variance. Nobody else has the noise: another key draws other noise. A second view of a round is
// refused, that is an instruction with other parameters, and so is a round beyond those that epsilon covers.
func TestNoiseOfAClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noise.json")
	first, err := upload(t, path, nil)
	goldentest.NoError(t, err)
	again, err := upload(t, path, nil)
	if err != nil || !alike(first, again) {
		t.Errorf("given again: %v, %v", again, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	other, err := upload(t, filepath.Join(t.TempDir(), "noise.json"), nil)
	if err != nil || alike(first, other) {
		t.Errorf("another key has the same noise; %v", err)
	}
	seeded, err := upload(t, "", nil)
	if err != nil || alike(first, seeded) {
		t.Errorf("the seed has the same noise; %v", err)
	}
	for want, change := range map[string]func(o *message.Instruction){
		"another update of this client was released in this round": func(o *message.Instruction) {
			o.Shared["ctx"].Data[0] = 1
		},
		"epsilon assumes 2 rounds": func(o *message.Instruction) { o.Round = 2 },
		"is not the 4 of this client's configuration": func(o *message.Instruction) {
			o.Broadcast["dp/clients"].Data[0] = 400
		},
	} {
		_, err := upload(t, path, change)
		goldentest.WantError(t, err, want)
	}
	if _, err := upload(t, path, func(o *message.Instruction) { o.Round = 1 }); err != nil {
		t.Error(err)
	}
}

// The server draws a round's clients with its key, not with the seed that clients know. Epsilons are recorded.
func TestNoiseOfAServer(t *testing.T) {
	e, _ := withClientNoise(t)
	e.Plan.Participation, e.Plan.Rounds, e.Plan.TestEvery = 0.5, 6, 10
	e.Method = buildMethod(t, "promptfl", []string{"dp"}, map[string]any{"tokens": 2, "noise": 1.0, "delta": 1e-3})
	dir := t.TempDir()
	drawn := map[*engine.Result][]int{}
	run := func(path string) *engine.Result {
		t.Helper()
		var turns trainingTurns
		set := engine.Settings{Workers: 2, OnTurn: turns.note}
		if path != "" {
			var err error
			if set.ServerNoise, err = noise.Open(filepath.Join(dir, path), "run", false); err != nil {
				t.Fatal(err)
			}
		}
		r := mustRun(t, e, set)
		drawn[r] = turns.sorted()
		return r
	}
	seeded, one, again, other := run(""), run("a"), run("a"), run("b")
	if !alike(one.Prompts["shared/ctx"], again.Prompts["shared/ctx"]) {
		t.Error("the same key gives other bytes")
	}
	if alike(one.Prompts["shared/ctx"], other.Prompts["shared/ctx"]) ||
		alike(one.Prompts["shared/ctx"], seeded.Prompts["shared/ctx"]) {
		t.Error("another key gives the same bytes")
	}
	if slices.Equal(drawn[one], drawn[seeded]) && slices.Equal(drawn[other], drawn[seeded]) {
		t.Error("clients are drawn by the seed")
	}
	if n := one.Summary.Notes; !(n["epsilon"] > 0 && n["epsilon_unsampled"] >= n["epsilon"]) ||
		n["epsilon_nominal"] != 0 {
		t.Errorf("%v", n)
	}
	if n := seeded.Summary.Notes; n["epsilon"] != 0 || n["epsilon_nominal"] != one.Summary.Notes["epsilon"] {
		t.Errorf("%v", n)
	}
}

// A client adds noise in its steps and, separately, to its upload. The same turn again yields the same local prompt,
// and another key another prompt. Another turn in the same round is refused before it releases anything, and so are
// more steps than epsilon covers.
func TestNoiseOfSteps(t *testing.T) {
	turn := func(path string, steps int, change func(o *message.Instruction, c *spec.Client)) (*tensor.Tensor, error) {
		e, o := withClientNoise(t)
		m := buildMethod(t, "dpfpl", []string{"dp"}, map[string]any{"tokens": 2,
			"dpfpl": map[string]any{"steps": steps, "noise": 0.1},
			"dp":    map[string]any{"where": "client", "delta": 1e-3}})
		e.Method, o.Shared, e.Training.Epochs = m, tensor.Map{"global": tensor.New(2, 6)}, 3
		change(&o, e.Clients[0])
		n, err := noise.Open(path, "run", false)
		goldentest.NoError(t, err)
		w := client.NewWorker(e, client.Settings{Noise: func(int) *noise.Noise { return n }})
		defer w.Close()
		_, s, err := w.Execute(context.Background(), e.Clients[0], o, message.ClientState{})
		if err != nil {
			return nil, err
		}
		return s.Private["local"], nil
	}
	plain := func(*message.Instruction, *spec.Client) {}
	path := filepath.Join(t.TempDir(), "noise.json")
	first, err := turn(path, 3, plain)
	goldentest.NoError(t, err)
	if again, err := turn(path, 3, plain); err != nil || !alike(first, again) {
		t.Errorf("given again: %v, %v", again, err)
	}
	if other, err := turn(filepath.Join(t.TempDir(), "noise.json"), 3, plain); err != nil || alike(first, other) {
		t.Errorf("another key has the same noise; %v", err)
	}
	const refused = "another update of this client was released in this round"
	for what, change := range map[string]func(o *message.Instruction, c *spec.Client){
		"other parameters": func(o *message.Instruction, _ *spec.Client) { o.Shared["global"].Data[0] = 1 },
		"a control variate": func(o *message.Instruction, _ *spec.Client) {
			o.Broadcast = o.Broadcast.Clone().Put("scaffold/c", tensor.Map{"global": tensor.New(2, 6)})
		},
		"other examples": func(_ *message.Instruction, c *spec.Client) { c.Train = methodtest.Rows(50, 4, 5, 4) },
	} {
		_, err := turn(path, 3, change)
		goldentest.WantErrorOf(t, what, err, refused)
	}
	_, err = turn(filepath.Join(t.TempDir(), "noise.json"), 2, plain)
	goldentest.WantError(t, err, "step 3 of a round; epsilon_local assumes 2 at most")
}
