package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// trainingTurns are the training turns of a run, as round * 100 + client.
type trainingTurns struct {
	mu  sync.Mutex
	all []int
}

func (x *trainingTurns) note(o message.Instruction, client int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o.Kind == message.Train {
		x.all = append(x.all, o.Round*100+client)
	}
}

func (x *trainingTurns) sorted() []int {
	out := slices.Sorted(slices.Values(x.all))
	return slices.Compact(out)
}

// withSampling returns an experiment of 12 rounds under dp with these options; in each round 2 of 4 clients train.
func withSampling(t *testing.T, base string, o map[string]any) *spec.Experiment {
	t.Helper()
	e, _ := withClientNoise(t)
	e.Plan.Participation, e.Plan.Rounds, e.Plan.TestEvery = 0.5, 12, 4
	e.Method = buildMethod(t, base, []string{"dp"}, o)
	return e
}

// secretNoise returns the options of dp with secret noise.
func secretNoise(where string) map[string]any {
	return map[string]any{"tokens": 2, "noise": 1.0, "delta": 1e-3, "secure": true, "where": where}
}

// With the option secure two runs of one process draw different clients (the same ones once in 6^12 times), since the
// recorded epsilon is that of a secret sample. A run that draws from the seed records epsilon as nominal.
func TestSecureDrawsClientsInSecret(t *testing.T) {
	for _, where := range []string{"server", "client"} {
		run := func() ([]int, *engine.Result) {
			var turns trainingTurns
			r := mustRun(t, withSampling(t, "promptfl", secretNoise(where)), engine.Settings{Workers: 2,
				OnTurn: turns.note})
			return turns.sorted(), r
		}
		one, first := run()
		two, second := run()
		if len(one) != 24 || slices.Equal(one, two) {
			t.Errorf("%s: clients %v and %v", where, one, two)
		}
		if alike(first.Prompts["shared/ctx"], second.Prompts["shared/ctx"]) {
			t.Errorf("%s: two runs have the same noise", where)
		}
		n := first.Summary.Notes
		if !(n["epsilon"] > 0 && n["epsilon"] < n["epsilon_unsampled"]) || n["epsilon_nominal"] != 0 {
			t.Errorf("%s: %v", where, n)
		}
	}
}

// An interrupted run with secret noise resumes with its key: its clients and prompts are those of an uninterrupted run
// with the same key. Without the key it does not resume. A new run in the folder has another key.
func TestSecureResumes(t *testing.T) {
	for _, where := range []string{"server", "client"} {
		whole, parts := t.TempDir(), t.TempDir()
		var want, got trainingTurns
		wanted := mustRun(t, withSampling(t, "promptfl", secretNoise(where)), engine.Settings{Dir: whole,
			OnTurn: want.note})
		key := filepath.Join(record.CheckFolder, "noise.json")
		b := filetest.Read(t, filepath.Join(whole, key))
		if st, err := os.Stat(filepath.Join(whole, key)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
		goldentest.NoError(t, os.MkdirAll(filepath.Join(parts, record.CheckFolder), 0o700))
		goldentest.NoError(t, os.WriteFile(filepath.Join(parts, key), b, 0o600))
		ctx, stop := context.WithCancel(context.Background())
		set := engine.Settings{Dir: parts, Resume: true, OnTurn: func(o message.Instruction, client int) {
			got.note(o, client)
			if o.Round == 5 {
				stop()
			}
		}}
		if _, err := engine.Run(ctx, withSampling(t, "promptfl", secretNoise(where)), set); err == nil {
			t.Fatal("the run was not stopped")
		}
		set.OnTurn = got.note
		r := mustRun(t, withSampling(t, "promptfl", secretNoise(where)), set)
		if !slices.Equal(got.sorted(), want.sorted()) {
			t.Errorf("%s: clients %v, not %v", where, got.sorted(), want.sorted())
		}
		if prompts(t, parts) != prompts(t, whole) {
			t.Errorf("%s: other prompts", where)
		}
		if r.Summary.Notes["epsilon"] != wanted.Summary.Notes["epsilon"] {
			t.Errorf("%s: %v, not %v", where, r.Summary.Notes, wanted.Summary.Notes)
		}
		goldentest.NoError(t, os.Remove(filepath.Join(parts, key)))
		refused(t, withSampling(t, "promptfl", secretNoise(where)), set, "cannot resume", "noise.json is missing",
			"restore the file")
	}
}

// A machine that executes the turns of clients with noise, and has no secret, refuses them.
func TestSecureWithoutASecret(t *testing.T) {
	e := withSampling(t, "promptfl", secretNoise("client"))
	_, o := withClientNoise(t)
	o.Broadcast["dp/clients"].Data[0] = 2
	w := newRemoteClients(e).worker
	defer w.Close()
	_, _, err := w.Execute(context.Background(), e.Clients[0], o, message.ClientState{})
	says(t, err, "option secure of dp", "was given none", "where: server")
}

// If epsilon depends on a secret sample, the records of the run do not reveal which clients trained: they have neither
// client numbers nor lists by client of private parameters, which change when a client trains. If the sample has a
// random size, no size reveals it. A run from the seed hides nothing.
func TestRecordsHideTheSample(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		for _, base := range []string{"promptfl", "fedpgp"} {
			o := secretNoise("server")
			e := withSampling(t, base, o)
			e.Plan.Poisson = poisson
			dir := t.TempDir()
			run := mustRun(t, e, engine.Settings{Dir: dir})
			b := filetest.Read(t, filepath.Join(dir, record.RoundsFile))
			text := string(b)
			if !strings.Contains(text, `"secret_sample":true`) || strings.Contains(text, `"clients":[`) ||
				strings.Contains(text, `"untrained"`) {
				t.Errorf("%s, poisson %v: %s", base, poisson, text)
			}
			for _, r := range run.Records {
				if e := r.Evaluations.Personal; e != nil && len(e.PerClient)+len(e.PerDomain) > 0 {
					t.Errorf("%s: round %d lists %v", base, r.Round, e.PerClient)
				}
				if sized := r.BytesUp+r.BytesDown+r.ParametersUp+r.ParametersDown > 0; sized == poisson {
					t.Errorf("%s, poisson %v: %+v", base, poisson, r)
				}
			}
			delete(o, "secure")
			for _, r := range mustRun(t, withSampling(t, base, o), engine.Settings{}).Records {
				if len(r.Clients) != 2 || r.SecretSample {
					t.Errorf("%s from the seed: %+v", base, r)
				}
			}
		}
	}
}
