package engine_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

func TestParticipationTestsAndRates(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds, e.Plan.Participation, e.Plan.TestEvery = 8, 0.5, 3
	e.Training.Schedule = optim.Schedule{Kind: "step", StepSize: 3, Gamma: 0.5}
	rec := trace.NewRecorder()
	r := mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
	seen, times := map[string]bool{}, map[int]int{}
	for i, rec := range r.Records {
		if len(rec.Clients) != 2 || !slices.IsSorted(rec.Clients) {
			t.Errorf("round %d: clients %v, want 2 of 4 in order", i, rec.Clients)
		}
		seen[fmt.Sprint(rec.Clients)] = true
		for _, c := range rec.Clients {
			times[c]++
		}
		if tested := i == 2 || i == 5 || i == 7; rec.Tested != tested || (rec.Evaluation != nil) != tested || tested &&
			len(rec.Evaluation.PerClient) != 4 {
			t.Errorf("round %d: tested %v: %+v", i, rec.Tested, rec.Evaluation)
		}
		if want := []float64{.1, .1, .1, .05, .05, .05, .025, .025}[i]; rec.LR != want {
			t.Errorf("round %d: rate %v, want %v", i, rec.LR, want)
		}
	}
	if len(seen) < 3 || len(times) != 4 {
		t.Errorf("8 rounds drew only %v", seen)
	}
	for _, s := range rec.Steps {
		if s.LR != r.Records[s.Round].LR || !slices.Contains(r.Records[s.Round].Clients, s.Client) {
			t.Errorf("step %+v in round %+v", s, r.Records[s.Round])
		}
	}
	for i, p := range []float64{0.01, 0.3, 0.99, 1, 0} {
		e.Plan.Participation, e.Plan.Rounds = p, 1
		if got, want := len(mustRun(t, e, engine.Settings{}).Records[0].Clients), []int{1, 1, 4, 4, 4}[i]; got != want {
			t.Errorf("participation %v: %d clients, want %d", p, got, want)
		}
	}
}

// A client that sat out a round keeps its private prompt. A client's result does not depend on the other clients.
func TestWhoElseTrainsDoesNotMatter(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 1
	all := trace.NewRecorder()
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: all}})
	e.Plan.Participation = 0.5
	some := trace.NewRecorder()
	r := mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: some}})
	for _, c := range r.Records[0].Clients {
		for _, name := range []string{"begin/local", "s0/image", "s0/loss", "upload/global"} {
			name = fmt.Sprintf("r0/c%d/%s", c, name)
			if !slices.Equal(all.Tensors[name].Data, some.Tensors[name].Data) {
				t.Errorf("%s depends on who else trains", name)
			}
		}
	}
}

func TestDropLast(t *testing.T) {
	for _, drop := range []bool{false, true} {
		e := toy(t)
		e.Plan.Rounds, e.Training.DropLast, e.Training.Epochs = 1, drop, 2
		rec := trace.NewRecorder()
		mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
		steps := map[int]int{}
		for _, s := range rec.Steps {
			steps[s.Client]++
		}
		// 9, 5, 6 and 3 examples in batches of 4, twice.
		want := map[bool]map[int]int{false: {0: 6, 1: 4, 2: 4, 3: 2}, true: {0: 4, 1: 2, 2: 2, 3: 2}}[drop]
		if fmt.Sprint(steps) != fmt.Sprint(want) {
			t.Errorf("drop %v: steps %v, want %v", drop, steps, want)
		}
		labels := map[int64]int{}
		for s := range 3 {
			if l := rec.Tensors[fmt.Sprintf("r0/c0/s%d/label", s)]; l != nil && !drop {
				for _, y := range l.Ints {
					labels[y]++
				}
			}
		}
		if !drop && fmt.Sprint(labels) != "map[0:3 1:2 2:2 3:2]" {
			t.Errorf("one epoch visited labels %v", labels)
		}
	}
}

// The accuracies of a record equal those computed from the traced logits.
func TestAccuracies(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 2
	rec := trace.NewRecorder()
	r := mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}}).Records[1]
	var per []float64
	for c := range 4 {
		logits, labels := rec.Tensors[fmt.Sprintf("r1/c%d/eval/logits", c)],
			rec.Tensors[fmt.Sprintf("r1/c%d/eval/label", c)].Ints
		hits := 0.0
		for i, y := range labels {
			row := logits.Row(i).Data
			if slices.Index(row, slices.Max(row)) == int(y) {
				hits++
			}
		}
		per = append(per, hits/float64(len(labels)))
	}
	mean, std := metrics.Mean(per), metrics.Deviation(per)
	if !slices.Equal(r.Evaluation.PerClient, per) || math.Abs(r.Evaluation.Accuracy()-mean) > 1e-12 ||
		math.Abs(r.Evaluation.Values[metrics.ClientStd]-std) > 1e-12 ||
		math.Abs(r.Evaluation.Values[metrics.Weighted]-mean) > 1e-12 {
		t.Errorf("%+v, want %v: %v and %v", r, per, mean, std)
	}
	if len(r.Evaluation.PerDomain) != 2 || math.Abs(r.Evaluation.PerDomain["east"]-(per[0]+per[1])/2) > 1e-12 ||
		math.Abs(r.Evaluation.PerDomain["west"]-(per[2]+per[3])/2) > 1e-12 {
		t.Errorf("domains %v of %v", r.Evaluation.PerDomain, per)
	}
}

// Bytes counted are those of the encoded messages.
func TestCountsBytes(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 1
	sent := 0
	var mu sync.Mutex
	r := mustRun(t, e, engine.Settings{Encode: true, Workers: 4, Executor: methodtest.Uploads(t, e, client.Settings{},
		func(_ int, m []byte) {
			mu.Lock()
			defer mu.Unlock()
			sent += len(m)
		})})
	if plain := mustRun(t, e, engine.Settings{}).Records[0]; r.Records[0].BytesUp != sent || plain.BytesUp != sent ||
		plain.BytesDown != r.Records[0].BytesDown {
		t.Errorf("%d bytes were sent, the records say %d and %d", sent, r.Records[0].BytesUp, plain.BytesUp)
	}
	if sent < 4*3*6*4 {
		t.Errorf("four prompts of 3x6 numbers in %d bytes", sent)
	}
}

func TestWriteTrace(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 2
	rec, dir := trace.NewRecorder(), filepath.Join(t.TempDir(), "new", "trace")
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}, Workers: 4})
	info := trace.Info{Config: map[string]any{"method": "fedpha"}, Classes: e.Classes, Tokens: [][]int{{5, 2}},
		Clients: trace.ClientInfos(e)}
	goldentest.NoError(t, rec.Write(dir, info))
	m, _, err := safetensors.ReadFile(filepath.Join(dir, trace.TensorsFile))
	if err != nil || !slices.Equal(m.Names(), rec.Tensors.Names()) {
		t.Fatalf("%v: %v", err, m.Names())
	}
	var got struct {
		Config  map[string]string
		Classes []string
		Tokens  [][]int
		Clients []struct {
			Bundle   string
			Examples int
			Test     int
			Domain   string
		}
		Steps []struct {
			Round, Client, Step int
			LR                  float64
		}
	}
	goldentest.ReadJSON(t, filepath.Join(dir, trace.InfoFile), &got)
	if got.Config["method"] != "fedpha" || len(got.Classes) != 4 || got.Tokens[0][1] != 2 || len(got.Clients) != 4 ||
		got.Clients[1].Bundle != "toy-b" || got.Clients[1].Examples != 5 || got.Clients[3].Test != 7 ||
		got.Clients[3].Domain != "west" {
		t.Errorf("%+v", got)
	}
	last := ""
	for _, s := range got.Steps {
		at := fmt.Sprintf("r%d/c%d/s%d", s.Round, s.Client, s.Step)
		if at <= last || s.LR != 0.1 || m[at+"/loss"] == nil {
			t.Errorf("step %+v after %s", s, last)
		}
		last = at
	}
	if want := 2 * (3 + 2 + 2 + 1); len(got.Steps) != want {
		t.Errorf("%d steps, want %d", len(got.Steps), want)
	}
	os.WriteFile(filepath.Join(filepath.Dir(dir), "file"), nil, 0o644)
	says(t, rec.Write(filepath.Join(filepath.Dir(dir), "file"), info), "trace", "file")
}

// Two augmented views: every row of a batch is one of its views, and both are used.
func TestViews(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 1
	f := features(e.Clients[0])
	first := f.Views[0].(spec.InMemory).Tensor
	other := first.Clone()
	tensor.Map{"x": other}.Scale(-1)
	f.Views = append(f.Views, spec.InMemory{Tensor: other})
	rec := trace.NewRecorder()
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
	count := [2]int{}
	for s := range 3 {
		image := rec.Tensors[fmt.Sprintf("r0/c0/s%d/image", s)]
		for i := range image.Shape[0] {
			found := false
			for v, view := range []*tensor.Tensor{first, other} {
				for row := range view.Shape[0] {
					if slices.Equal(view.Row(row).Data, image.Row(i).Data) {
						count[v]++
						found = true
					}
				}
			}
			if !found {
				t.Errorf("step %d, row %d is no view", s, i)
			}
		}
	}
	if count[0] == 0 || count[1] == 0 || count[0]+count[1] != 9 {
		t.Errorf("views were used %v times", count)
	}
	if !strings.HasPrefix(spec.Sentence("a {} or {}", "cat"), "a cat or cat") {
		t.Error("Sentence leaves a gap")
	}
}

// TestPhases: the phases of a round add up to its seconds, and each phase of a run takes some time.
func TestPhases(t *testing.T) {
	e := toy(t)
	e.Plan.TestEvery = 1
	r := mustRun(t, e, engine.Settings{Dir: t.TempDir(), Workers: 2, Encode: true})
	for _, rec := range r.Records {
		p := rec.Phases
		sum := p.Statistics + p.Training + p.Evaluation + p.Server + p.Messages + p.Disk
		if math.Abs(sum-rec.Seconds) > 1e-9 || p.Statistics != 0 {
			t.Errorf("round %d: phases %+v are %g s together, the round took %g", rec.Round, *p, sum, rec.Seconds)
		}
		for name, v := range map[string]float64{"training": p.Training, "evaluation": p.Evaluation, "server": p.Server,
			"messages": p.Messages, "disk": p.Disk} {
			if v <= 0 {
				t.Errorf("round %d: %s took %g s", rec.Round, name, v)
			}
		}
	}
	quiet := mustRun(t, e, engine.Settings{}).Records[0].Phases
	if quiet.Messages != 0 {
		t.Errorf("messages that are not encoded took %g s", quiet.Messages)
	}
}

// notesDraws is a method that notes whether it has Draws at its start.
type notesDraws struct {
	method.Method
	has *bool
}

func (m notesDraws) Start(g *method.Global) error {
	*m.has = g.Draws != nil
	return m.Method.Start(g)
}

// A method has Draws from its start where a run is traced, and nowhere else.
func TestDrawsFromTheStart(t *testing.T) {
	for _, rec := range []trace.Tracer{nil, trace.NewRecorder()} {
		has := false
		e := withMethod(notesDraws{toy(t).Method, &has})
		e.Plan.Rounds = 1
		mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
		if traced := rec != nil; has != traced {
			t.Errorf("traced %v: Draws %v", traced, has)
		}
	}
}
