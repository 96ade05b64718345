package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// ridge adds to cross entropy, which reads "ctx" only, half the square of "free" and 3 times the sum of "ctx".
type ridge struct{ method.Base }

func (ridge) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{2, t.Width}, Std: 0.5}, {Name: "free", Shape: []int{4}, Std: 1}}
}

func (ridge) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), s.Text(s.Param("ctx")))
}

func (ridge) Loss(s *method.Scope, logits graph.Node) graph.Node {
	square := s.Param("free").Square().Sum().MulScalar(0.5)
	return s.CrossEntropy(logits).Add(s.Term("ridge", square)).Add(s.Term("slope", s.Param("ctx").Sum().MulScalar(3)))
}

// unnamedTerm is a loss with an unnamed part.
type unnamedTerm struct{ ridge }

func (r unnamedTerm) Loss(s *method.Scope, logits graph.Node) graph.Node {
	return r.ridge.Loss(s, logits).Add(s.Param("ctx").Sum())
}

// By hand: the gradient of half a square is the parameter, and a step of 0.1 shrinks the parameter by 0.9, so its norm
// in round r is 0.9^r |free| (one step a round, all clients alike), and the term's value is half the square of that.
// The gradient of 3 times a sum of 12 numbers has the norm √12·3. Cross entropy does not reach "free".
func TestTermsByHand(t *testing.T) {
	e := withMethod(ridge{})
	e.Clients = methodtest.ClientsOfOneBackbone(4, 4)
	r := mustRun(t, e, engine.Settings{Client: client.Settings{Terms: true}})
	norm := method.Draw(e.Plan.Seed, -1, "free", []int{4}, 1).Norm()
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6*math.Abs(b) }
	for i, rec := range r.Records {
		if len(rec.Terms) != 3 {
			t.Fatalf("%+v", rec.Terms)
		}
		fit, ridge, slope := rec.Terms[0], rec.Terms[1], rec.Terms[2]
		want := norm * math.Pow(0.9, float64(i))
		if on, ok := ridge.Params["free"]; len(ridge.Params) != 1 || !ok || !near(on.Norm, want) ||
			on.Relative != nil || !near(*ridge.Value, want*want/2) || !near(*ridge.Relative, want/fit.Norm) {
			t.Errorf("round %d: %+v, want a norm of %g", i, ridge, want)
		}
		if on := slope.Params["ctx"]; len(slope.Params) != 1 || !near(on.Norm, 3*math.Sqrt(12)) ||
			!near(*on.Relative, on.Norm/fit.Norm) {
			t.Errorf("round %d: %+v", i, slope)
		}
		if _, ok := fit.Params["free"]; ok || *fit.Relative != 1 || *fit.Params["ctx"].Relative != 1 {
			t.Errorf("round %d: %+v", i, fit)
		}
		if sum := *fit.Value + *ridge.Value + *slope.Value; !near(sum, *rec.Loss) {
			t.Errorf("round %d: the terms' values add up to %g, the loss is %g", i, sum, *rec.Loss)
		}
	}
}

// Terms and drift in a record are the same to the last bit with any number of workers and any form of messages, with
// terms of a loss, of a wrapper and of a correction.
func TestTermsInAnyForm(t *testing.T) {
	for _, wrappers := range [][]string{nil, {"fedprox"}, {"scaffold"}} {
		m := buildMethod(t, "fedpha", wrappers, nil)
		records := func(set engine.Settings) string {
			set.Client.Terms = true
			var all []any
			for _, r := range mustRun(t, withMethod(m), set).Records {
				if all = append(all, r.Terms, r.Drift); len(r.Terms) < 4 || len(r.Drift) < 2 {
					t.Errorf("%v: terms %v, drift %v", wrappers, r.Terms, r.Drift)
				}
			}
			return string(goldentest.JSON(t, all))
		}
		if d := cmp.Diff(records(engine.Settings{}), records(engine.Settings{Workers: 8, Encode: true})); d != "" {
			t.Errorf("%v: %s", wrappers, d)
		}
	}
}

// A term reaches the parameters of its formula, although all prompts pass through the text tower together: each of
// FedPHA's (eq. 11-13) cross entropies reaches one prompt, pull the local one (the projector is a constant), push both.
func TestTermsReachWhatTheyName(t *testing.T) {
	terms := mustRun(t, toy(t), engine.Settings{Client: client.Settings{Terms: true}}).Records[0].Terms
	for i, want := range []string{"local", "global", "local", "global local"} {
		if got := strings.Join(slices.Sorted(maps.Keys(terms[i].Params)), " "); got != want {
			t.Errorf("%s reaches %s, want %s", terms[i].Name, got, want)
		}
	}
}

// TestDriftOfARun compares the recorded drift with that of what clients last trained (client/K/own/NAME), in the only
// round. Without eval.terms, and where the method hides clients, none is recorded.
func TestDriftOfARun(t *testing.T) {
	e := withMethod(ridge{})
	e.Plan.Rounds = 1
	r := mustRun(t, e, engine.Settings{Client: client.Settings{Terms: true}})
	first, replies := tensor.Map{}, []message.Reply{}
	for _, p := range (ridge{}).Params(e.Task(e.Clients[0])) {
		first[p.Name] = p.Initial(e.Plan.Seed, -1)
	}
	for k := range e.Clients {
		own := r.Prompts.WithoutPrefix(fmt.Sprintf("client/%d/own", k))
		replies = append(replies, message.Reply{Client: k, Upload: method.Upload{Shared: own}})
	}
	if d := cmp.Diff(record.DriftOf(first, replies), r.Records[0].Drift); d != "" || len(replies) < 2 {
		t.Errorf("%d clients: %s", len(replies), d)
	}
	if r := mustRun(t, e, engine.Settings{}); r.Records[0].Drift != nil {
		t.Errorf("without terms: %+v", r.Records[0].Drift)
	}
	e.Method = hiding{}
	if r := mustRun(t, e, engine.Settings{Client: client.Settings{Terms: true}}); r.Records[0].Drift != nil {
		t.Errorf("of clients that the method hides: %+v", r.Records[0].Drift)
	}
}

// hiding is a method with the mark of client-level differential privacy.
type hiding struct{ ridge }

func (hiding) Properties() method.Properties { return method.Properties{HidesClients: true} }

// Without eval.terms a record has no terms. A run that resumes with it keeps the earlier records. A loss with an
// unnamed part is refused only with it.
func TestTermsAreAskedFor(t *testing.T) {
	r := mustRun(t, withMethod(unnamedTerm{}), engine.Settings{})
	b, err := json.Marshal(r.Records[0])
	var line map[string]any
	if err == nil {
		err = json.Unmarshal(b, &line)
	}
	if _, ok := line["terms"]; ok || err != nil {
		t.Errorf("%s, %v", b, err)
	}
	refused(t, withMethod(unnamedTerm{}), engine.Settings{Client: client.Settings{Terms: true}}, "eval.terms",
		"parts of the loss have no name",
		"Scope.Term")

	dir := t.TempDir()
	ctx, stop := context.WithCancel(context.Background())
	_, err = engine.Run(ctx, withMethod(ridge{}), engine.Settings{Client: client.Settings{Terms: true}, Dir: dir,
		OnRound: func(record.Record) { stop() }})
	if err == nil {
		t.Fatal("the run was not stopped")
	}
	r = mustRun(t, withMethod(ridge{}), engine.Settings{Dir: dir, Resume: true})
	if len(r.Records) != 3 || len(r.Records[0].Terms) != 3 || r.Records[2].Terms != nil {
		t.Errorf("%d records; %v and %v", len(r.Records), r.Records[0].Terms, r.Records[2].Terms)
	}
}

// Behind a guard no terms of single clients are sent.
func TestTermsOfHiddenClients(t *testing.T) {
	refused(t, withMethod(ridge{}), engine.Settings{Client: client.Settings{Terms: true, Guard: doublingGuard{}}},
		"eval.terms", "secure aggregation")
}
