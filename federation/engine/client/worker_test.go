package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// build returns an experiment with a method on clients of one backbone.
func build(t *testing.T, base string, with []string, o map[string]any) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, base, with, o)
	e := withMethod(m)
	e.Clients = methodtest.ClientsOfOneBackbone(9, 5)
	return e
}

func newWorker(t *testing.T, e *spec.Experiment, set client.Settings) *client.Worker {
	t.Helper()
	w := client.NewWorker(e, set)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// sentTo returns an instruction with the method's initial shared parameters.
func sentTo(e *spec.Experiment, k message.Kind) message.Instruction {
	o := message.Instruction{Kind: k, Total: len(e.Clients), Shared: tensor.Map{}, Broadcast: tensor.Map{}}
	for _, p := range e.Method.Params(e.Task(e.Clients[0])) {
		if p.Owner == method.Shared {
			o.Shared[p.Name] = p.Initial(e.Plan.Seed, 0)
		}
	}
	return o
}

// A worker answers each kind of instruction. A test before any training is of the server's parameters and says so;
// afterwards the personal evaluation is of the client's own. Validation data, an evaluation set and a new client have
// the scores that the test has of the same examples and parameters.
func TestExecute(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	e.Training.Optim.LR = 5 // so that training changes predictions
	e.Evaluate.Confusion = true
	c := e.Clients[0]
	c.Val = c.Test
	e.EvaluationSets = []spec.EvaluationSet{{Name: "same", Test: map[string]*spec.Features{"toy-a": c.Test}},
		{Name: "new", Classes: []string{"x", "y"}, Template: "{}",
			Test: map[string]*spec.Features{"toy-a": methodtest.Rows(1, 3, 5, 2)}}}
	w := newWorker(t, e, client.Settings{})
	run := func(o message.Instruction, s message.ClientState) (message.Reply, *message.ClientState) {
		t.Helper()
		r, next, err := w.Execute(t.Context(), c, o, s)
		goldentest.NoError(t, err)
		return r, next
	}
	test := sentTo(e, message.Test)
	first, next := run(test, message.ClientState{})
	if s := first.Scores; next != nil || s.Examples != 7 || !s.Untrained ||
		!reflect.DeepEqual(s.Global, s.Personal) || s.Global.HasConfusion() {
		t.Errorf("%+v", s)
	}
	r, after := run(sentTo(e, message.Train), message.ClientState{})
	if r.Client != 0 || r.Upload.N != 9 || r.Stats.Steps != 3 || !(r.Stats.Loss > 0) || r.Stats.Terms != nil ||
		after == nil || !reflect.DeepEqual(after.Own, r.Upload.Shared) {
		t.Errorf("%+v, %+v", r, after)
	}
	test.Confusion = true
	trained, _ := run(test, *after)
	if s := trained.Scores; s.Untrained || !s.Global.HasConfusion() || !slices.Equal(s.Global["brier"],
		first.Scores.Global["brier"]) || slices.Equal(s.Personal["brier"], s.Global["brier"]) {
		t.Errorf("%+v", s)
	}
	test.Confusion = false
	moved := test
	moved.Shared = after.Own
	if r, _ := run(moved, message.ClientState{}); !slices.Equal(r.Scores.Global["brier"],
		trained.Scores.Personal["brier"]) {
		t.Errorf("%v with the client's own parameters as the server's, %v", r.Scores.Global, trained.Scores.Personal)
	}
	validate, set, adapt := test, test, sentTo(e, message.Adapt)
	validate.Kind, set.Set = message.Validate, "same"
	for what, o := range map[string]message.Instruction{"validation": validate, "evaluation set": set} {
		if r, _ := run(o, *after); r.Scores.Examples != 7 || !slices.Equal(r.Scores.Personal["brier"],
			trained.Scores.Personal["brier"]) || !slices.Equal(r.Scores.Global["brier"], first.Scores.Global["brier"]) {
			t.Errorf("%s: %+v", what, r.Scores)
		}
	}
	set.Set = "new"
	if r, _ := run(set, *after); r.Scores.Examples != 3 || !(r.Scores.Global["brier"][0] > 0) {
		t.Errorf("%+v", r.Scores)
	}
	if r, _ := run(adapt, message.ClientState{}); !reflect.DeepEqual(r.Scores, first.Scores) {
		t.Errorf("a new client without a step: %+v", r.Scores)
	}
	adapt.Steps = 3 // as many as the turn had
	if r, _ := run(adapt, message.ClientState{}); !slices.Equal(r.Scores.Personal["brier"],
		trained.Scores.Personal["brier"]) {
		t.Errorf("a new client after three steps: %+v", r.Scores)
	}
	c.Val = nil
	if r, _ := run(validate, *after); r.Scores.Examples != 0 || r.Scores.Global != nil {
		t.Errorf("without validation data: %+v", r.Scores)
	}
}

// An error names the round from 1, the client and what it did.
func TestExecuteRefuses(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	w := newWorker(t, e, client.Settings{})
	nan := sentTo(e, message.Test)
	nan.Round = 1
	nan.Shared["ctx"].Data[0] = float32(math.NaN())
	train, adapt, validate, missing, statistic := nan, nan, nan, nan, nan
	train.Kind, adapt.Kind, adapt.Steps, validate.Kind, missing.Set, statistic.Kind,
		statistic.Statistic = message.Train, message.Adapt, 1, message.Validate, "x", message.Compute, "y"
	e.Clients[1].Val = e.Clients[1].Test
	for says, o := range map[string]message.Instruction{
		"round 2, client 1, test: a class score holds NaN at element 0; lower train.lr":         nan,
		"validation: round 2, client 1, test: a class score holds NaN":                          validate,
		"round 2, client 1: step 0: the gradient of ctx holds NaN at element":                   train,
		"holds NaN at element 0; " + message.DivergenceHint + "; with this method a new client": adapt,
		`round 2, client 1: this client has no evaluation set "x"`:                              missing,
		`round 2, client 1: the method has no statistic "y"`:                                    statistic,
		`unknown instruction "end"`:                                                             {Kind: "end"},
	} {
		r, next, err := w.Execute(t.Context(), e.Clients[1], o, message.ClientState{})
		if err == nil || !strings.Contains(err.Error(), says) || next != nil || r.Upload.Shared != nil {
			t.Errorf("%v, want %q", err, says)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := w.Execute(stopped, e.Clients[1], sentTo(e, message.Train), message.ClientState{}); err == nil ||
		err.Error() != "round 1, client 1: step 0: context canceled" {
		t.Error(err)
	}
}

// Where terms are measured, one that is not finite ends the turn and is named.
func TestTermsAreFinite(t *testing.T) {
	e := withMethod(countsLocalClasses{})
	o := sentTo(e, message.Train)
	o.Shared["ctx"].Data[0] = float32(math.NaN())
	w := newWorker(t, e, client.Settings{Terms: true})
	if _, _, err := w.Execute(t.Context(), e.Clients[0], o, message.ClientState{}); err == nil ||
		!strings.HasPrefix(err.Error(), "round 1, client 0: step 0: term count: loss holds NaN at element 0") {
		t.Error(err)
	}
}

// fakeGuard answers the statistic "guard" and doubles uploads.
type fakeGuard struct{}

func (fakeGuard) Answer(_ int, o message.Instruction) (tensor.Map, bool, error) {
	if o.Statistic == "broken" {
		return nil, false, errors.New("broken")
	}
	return tensor.Map{"key": tensor.Scalar(7)}, o.Statistic == "guard", nil
}

func (fakeGuard) Protect(_ int, _ message.Instruction, up *method.Upload, stats *message.Stats) error {
	up.Extra, stats.Loss = tensor.Map{"guarded": tensor.Scalar(1)}, 0
	return nil
}

// recordedExecutor notes the instructions that it gets.
type recordedExecutor struct{ got []message.Instruction }

func (x *recordedExecutor) Execute(_ context.Context, c *spec.Client, o message.Instruction,
	_ func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	x.got = append(x.got, o)
	if o.Round == 9 {
		return message.Reply{}, nil, errors.New("failed")
	}
	return message.Reply{Client: c.ID, Stats: message.Stats{Loss: 5}}, nil, nil
}

// A guard's tensors stay on this side: an executor elsewhere gets the instruction without them, and the guard protects
// what comes back of training.
func TestExecuted(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	w, x, c := newWorker(t, e, client.Settings{}), &recordedExecutor{}, e.Clients[1]
	w.Settings.Guard = fakeGuard{}
	value := func(v float32) tensor.Map { return tensor.Map{"a": tensor.Scalar(v), "guard/b": tensor.Scalar(v)} }
	o := message.Instruction{Kind: message.Train, Broadcast: value(1), PerClient: map[int]tensor.Map{1: value(2)},
		Guarded: tensor.Specs{{}}}
	execute := func() (message.Reply, error) {
		r, _, err := client.Executed{Worker: w, By: x}.Turns(t.Context(), []client.Job{{Client: c, Instruction: o}})
		return r[0], err
	}
	r, err := execute()
	if got := x.got[0]; err != nil || got.Guarded != nil || !slices.Equal(got.Broadcast.Names(), []string{"a"}) ||
		!slices.Equal(got.PerClient[1].Names(), []string{"a"}) || len(o.Broadcast) != 2 ||
		r.Upload.Extra["guarded"] == nil || r.Stats.Loss != 0 {
		t.Errorf("%+v, %+v, %v", got, r, err)
	}
	o.Kind = message.Test
	if r, err := execute(); err != nil || r.Upload.Extra != nil || len(x.got) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	o.Kind = message.Compute
	for statistic, want := range map[string]string{"guard": "7 <nil> 2", "broken": "<nil> broken 2",
		"other": "<nil> <nil> 3"} {
		x.got, o.Statistic = x.got[:2], statistic
		r, err := execute()
		key := "<nil>"
		if k := r.Upload.Extra["key"]; k != nil {
			key = fmt.Sprint(k.Data[0])
		}
		if got := fmt.Sprint(key, " ", err, " ", len(x.got)); got != want {
			t.Errorf("%s: %s, want %s", statistic, got, want)
		}
		up, err := w.ComputeStatistic(t.Context(), c, o, message.ClientState{})
		if statistic == "guard" && (err != nil || up.N != 1 || up.Client != 1 || up.Extra["key"].Data[0] != 7) {
			t.Errorf("%+v, %v", up, err)
		}
	}
	o.Kind, o.Round = message.Train, 9
	if r, err := execute(); err == nil || r.Upload.Extra != nil {
		t.Errorf("%+v, %v", r, err)
	}
	w.Settings.Guard, o.Round = nil, 0
	if _, err := execute(); err != nil || len(x.got[len(x.got)-1].Guarded) != 1 {
		t.Errorf("without a guard: %v", err)
	}
}

// A statistic's answer counts the client's examples. Its trace has the rows that it was computed from.
func TestStatistic(t *testing.T) {
	e := build(t, "promptfl", []string{"ggtpc"}, nil)
	rec := trace.NewRecorder()
	w := newWorker(t, e, client.Settings{Tracer: rec})
	o := sentTo(e, message.Compute)
	o.Statistic = "ggtpc"
	r, next, err := w.Execute(t.Context(), e.Clients[0], o, message.ClientState{})
	if err != nil || next != nil || r.Upload.N != 9 || r.Upload.Extra["mean"] == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	at := "r0/statistic/ggtpc/c0/"
	if rows := rec.Tensors[at+"image"]; rows == nil || rows.Shape[0] != 9 || !slices.Equal(rec.Tensors[at+"label"].Ints,
		e.Clients[0].Train.Labels()) || !reflect.DeepEqual(rec.Tensors[at+"mean"], r.Upload.Extra["mean"]) {
		t.Errorf("%v", rec.Tensors.Names())
	}
}

// By hand: the products of two rows with two classes are (1·3+2·4, 1·5+2·6) = (11, 17) and (4, 6).
func TestProducts(t *testing.T) {
	got := client.Products(tensor.Of([]float32{1, 2, 0, 1}, 2, 2), tensor.Of([]float32{3, 4, 5, 6}, 2, 2))
	if !slices.Equal(got.Data, []float32{11, 17, 4, 6}) {
		t.Error(got.Data)
	}
}

// Zero-shot accuracies are those of the method zeroshot, over all images and over clients. Chance is the share of the
// most frequent class, or that of one of all classes.
func TestZeroShot(t *testing.T) {
	e := build(t, "zeroshot", nil, nil)
	w := newWorker(t, e, client.Settings{})
	e.Clients[1].Test = methodtest.Rows(50, 4, 5, 4)
	e.Clients = append(e.Clients, &spec.Client{ID: 2, Backbone: e.Clients[0].Backbone,
		Test: &spec.Features{Views: e.Clients[0].Test.Views}})
	right, rates := 0., []float64{}
	most := map[int64]int{}
	for _, c := range e.Clients[:2] {
		r, _, err := w.Execute(t.Context(), c, sentTo(e, message.Test), message.ClientState{})
		goldentest.NoError(t, err)
		right += r.Scores.Global["correct"][0]
		rates = append(rates, r.Scores.Global["correct"][0]/float64(r.Scores.Examples))
		for _, y := range c.Test.Labels() {
			most[y]++
		}
	}
	got, err := w.ZeroShot(t.Context(), e.Clients)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	z := got[0]
	if z.Backbone != "toy-a" || z.Accuracy != right/11 || z.Clients != 2 || z.Mean != rates[0]/2+rates[1]/2 ||
		z.Classes != 4 || z.Chance != float64(max(most[0], most[1], most[2], most[3]))/11 || z.Failed != "" {
		t.Errorf("%+v, want %v of 11, %v", z, right, rates)
	}
	e.Clients[1].Test.Views = []spec.RowReader{broken{}}
	if _, err := w.ZeroShot(t.Context(), e.Clients[1:]); err == nil ||
		err.Error() != "zero-shot accuracy, client 1: image: no rows" {
		t.Error(err)
	}
	if got, err := w.ZeroShot(t.Context(), e.Clients[2:]); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	var texts error // of computing the features of the texts, which takes minutes with a thousand classes
	e.Digests = map[string]string{"toy-a": "digest"}
	w = newWorker(t, e, client.Settings{Texts: func(_ [sha256.Size]byte, _ []int,
		compute func() (*tensor.Tensor, error)) (v *tensor.Tensor, err error) {
		v, texts = compute()
		return v, texts
	}})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.ZeroShot(stopped, e.Clients); err != context.Canceled || !errors.Is(texts, err) {
		t.Error(err, texts)
	}
	w.PrepareTexts(t.Context(), e.Clients[0])
	prepared := texts
	texts = context.Canceled
	_, _, err = w.Execute(t.Context(), e.Clients[0], sentTo(e, message.Test), message.ClientState{})
	if prepared != nil || err != nil || texts == nil {
		t.Errorf("%v, %v; computed in a test: %v", prepared, err, texts == nil)
	}
}

type broken struct{}

func (broken) Read([]int) (*tensor.Tensor, error) { return nil, errors.New("no rows") }

// An example that is no number is named by its place in the client's data.
func TestCheckBatch(t *testing.T) {
	image := tensor.Of([]float32{1, 2, 3, 4, float32(math.Inf(-1)), 6}, 3, 2)
	for _, c := range []struct {
		rows []int
		says string
	}{{[]int{9, 8, 7}, "example 7 "}, {[]int{9}, "example 2 "}, {[]int{9, 8}, "example 2 "}} {
		err := client.CheckBatch(tensor.Map{"image": image, "label": tensor.OfInts([]int64{1, 2, 3}, 3)}, c.rows)
		if err == nil || !strings.HasPrefix(err.Error(), "image of "+c.says+"holds -Inf; remove that example") {
			t.Errorf("%v: %v", c.rows, err)
		}
	}
	if err := client.CheckBatch(tensor.Map{"image": tensor.New(2, 2), "x": tensor.Scalar(float32(math.NaN()))},
		[]int{0, 1}); err != nil {
		t.Error(err)
	}
}

// By hand: with loss (w·x - 1)^2 over x = 1, 3 the gradient at w = 0 is the mean of -2x, -4. One step of 0.1 leads to
// w = 0.4, where the loss is (0.36 + 0.04)/2 = 0.2; at w = 0 it is 1.
func TestFit(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	w := newWorker(t, e, client.Settings{})
	loss := func(s *method.Scope) graph.Node {
		return s.Broadcast("x", 2).Mul(s.Param("w")).AddScalar(-1).Square().Mean()
	}
	for steps, want := range map[int][2]float64{0: {1, 0}, 1: {.2, .4}} {
		params := tensor.Map{"w": tensor.New(1)}
		got, err := w.Fit(t.Context(), e.Task(e.Clients[0]), params, tensor.Map{"x": tensor.Of([]float32{1, 3}, 2)},
			loss, steps, optim.Config{Name: "sgd", LR: .1})
		if err != nil || math.Abs(got-want[0]) > 1e-6 || math.Abs(float64(params["w"].Data[0])-want[1]) > 1e-6 {
			t.Errorf("%d steps: loss %v at %v, %v", steps, got, params["w"].Data, err)
		}
	}
	_, err := w.Fit(t.Context(), e.Task(e.Clients[0]), tensor.Map{"w": tensor.New(1)},
		tensor.Map{"x": tensor.Of([]float32{1, float32(math.NaN())}, 2)}, loss, 0, optim.Config{Name: "sgd", LR: .1})
	goldentest.WantError(t, err, "loss holds NaN at element 0")
	_, err = w.Fit(t.Context(), e.Task(e.Clients[0]), nil, nil, loss, 0, optim.Config{Name: "x"})
	goldentest.WantError(t, err, "x")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_, err = w.Fit(stopped, e.Task(e.Clients[0]), tensor.Map{"w": tensor.New(1)}, tensor.Map{"x": tensor.New(2)}, loss,
		9, optim.Config{Name: "sgd"})
	goldentest.WantError(t, err, context.Canceled.Error())
}

// Training on the server's images is that of a client with these examples, with epochs of its own and a constant rate,
// whatever wrappers, a codec and a guard make of uploads. It needs no secret noise.
func TestPretrain(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	c := e.Clients[0]
	synthetic := &spec.Synthetic{Backbone: c.Backbone, Data: c.Train, Epochs: 2}
	e.Training.Overrides = []spec.Overrides{{Steps: 1}}
	e.Training.Schedule = optim.Schedule{Kind: "cosine", TMax: 2}
	o := sentTo(e, message.Train)
	o.Round = 1
	o.Broadcast["dp/clients"] = tensor.Of([]float32{2}, 1)
	var got tensor.Map
	noisy := map[string]any{"noise": 1.0, "where": "client", "secure": true}
	for i, with := range [][]string{nil, {"fednova"}, {"compress"}, {"dp"}} {
		own := *e
		own.Method = buildMethod(t, "promptfl", with, map[bool]map[string]any{i == 3: noisy}[true])
		after, err := newWorker(t, &own, client.Settings{Guard: fakeGuard{}}).Pretrain(t.Context(), synthetic, o)
		if err != nil || i > 0 && !reflect.DeepEqual(after, got) {
			t.Fatalf("with %v: %v, without wrappers %v, %v", with, after, got, err)
		}
		got = after
	}
	e.Training.Overrides, e.Training.Schedule, e.Training.Epochs = nil, optim.Schedule{Kind: "constant"}, 2
	want, _, err := newWorker(t, e, client.Settings{}).Execute(t.Context(), c, o, message.ClientState{})
	if err != nil || !reflect.DeepEqual(got, want.Upload.Shared) || reflect.DeepEqual(got, o.Shared) ||
		want.Stats.Steps != 6 {
		t.Errorf("%v, want %v, %v", got, want.Upload.Shared, err)
	}
}

// One optimizer has a state that a resumed run restores; workers with an optimizer for each turn have none.
func TestOptimizerState(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	e.Training.Optim.Momentum = .9
	alone := newWorker(t, e, client.Settings{})
	alone.RestoreOptimizer(tensor.Map{"x": nil})
	if s := alone.OptimizerState(); s != nil {
		t.Error(s)
	}
	e.Training.Shared = true
	train := func(w *client.Worker, c int) tensor.Map {
		t.Helper()
		r, _, err := w.Execute(t.Context(), e.Clients[c], sentTo(e, message.Train), message.ClientState{})
		goldentest.NoError(t, err)
		return r.Upload.Shared
	}
	one := newWorker(t, e, client.Settings{})
	fresh := train(one, 0)
	state := one.OptimizerState().Clone()
	if len(state) == 0 || !slices.ContainsFunc(state.Names(), func(name string) bool {
		return strings.HasSuffix(name, "/ctx")
	}) {
		t.Error(state.Names())
	}
	want := train(one, 0)
	two := newWorker(t, e, client.Settings{})
	two.RestoreOptimizer(state)
	if got := train(two, 0); !reflect.DeepEqual(got, want) || reflect.DeepEqual(got, fresh) {
		t.Errorf("%v, want %v", got, want)
	}
}

// manyDeep is a method with more deep prompts than the image tower has blocks for.
type manyDeep struct{ valuesOfAllRows }

func (m manyDeep) Logits(s *method.Scope) graph.Node {
	p := s.Param("prompt")
	return s.Cosine(s.Vision(method.VisionPrompts{Deep: []graph.Node{p, p, p}}), s.HandText())
}

func (m manyDeep) Loss(s *method.Scope, logits graph.Node) graph.Node { return s.CrossEntropy(logits) }

// Graphs that a backbone cannot compute are refused before any data is read.
func TestCheckGraphs(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	b := e.Clients[0].Backbone
	if err := client.CheckGraphs(e, b, 1, 2); err != nil {
		t.Error(err)
	}
	e.Method = manyDeep{}
	goldentest.WantError(t, client.CheckGraphs(e, b, 1, 2), "client 1 on toy-a: ", "3 deep prompts")
}

// By hand, of image·(w+v) + (2·w): the sum and the product depend on no image.
func TestFixedParts(t *testing.T) {
	g := graph.New()
	image := g.InputFrom(method.Input{Kind: method.RowInput, Name: "image"}, graph.Float, graph.Static(2))
	w, v := g.Input("param/w", graph.Float, graph.Static(2)), g.Input("param/v", graph.Float, graph.Static(2))
	sum, twice := w.Add(v), w.MulScalar(2)
	root := image.Mul(sum).Add(twice)
	if got := client.FixedParts(root); !slices.Equal(got, []graph.Node{sum, twice}) {
		t.Errorf("%v", got)
	}
	other := g.Input("param/other", graph.Float, graph.Static(2))
	var names []string
	for _, n := range graph.Inputs(client.Replace([]graph.Node{root}, []graph.Node{sum},
		func(int) graph.Node { return other })...) {
		names = append(names, n.Name())
	}
	if slices.Sort(names); !slices.Equal(names, []string{"image", "param/other", "param/w"}) {
		t.Error(names)
	}
}

// The scores of a row do not depend on how many rows are scored with it: 20 rows are two parts of 16, of which the last
// is filled up. A method's own scores end with the run.
func TestScoreRows(t *testing.T) {
	e := build(t, "promptfl", nil, nil)
	w, c := newWorker(t, e, client.Settings{}), e.Clients[0]
	rows := methodtest.Rows(9, 20, 5, 4)
	l, s := w.Begin(t.Context(), c, sentTo(e, message.Test), message.ClientState{})
	all, err := w.ScoreRows(t.Context(), c, l, s, rows)
	if err != nil || fmt.Sprint(all.Shape) != "[20 4]" || len(all.Data) != 80 {
		t.Fatal(all, err)
	}
	for _, i := range []int{0, 15, 16, 19} {
		one, err := w.ScoreRows(t.Context(), c, l, s, rows.Pick([]int{i}))
		if err != nil || !slices.Equal(one.Data, all.Row(i).Data) {
			t.Errorf("row %d: %v alone, %v among others, %v", i, one, all.Row(i).Data, err)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	l, _ = w.Begin(stopped, c, sentTo(e, message.Train), message.ClientState{})
	_, err = l.Eval(e.Method.Logits)
	goldentest.WantError(t, err, context.Canceled.Error())
	rows.Views[0].(spec.InMemory).Tensor.Row(18).Data[0] = float32(math.NaN())
	_, err = w.ScoreRows(t.Context(), c, l, s, rows)
	goldentest.WantError(t, err, "image of example 18 holds NaN")
}

// Noise from a secret needs one, and is drawn for the rounds that epsilon covers.
func TestNoiseNeedsASecret(t *testing.T) {
	e := build(t, "promptfl", []string{"dp"}, map[string]any{"tokens": 2, "noise": 1.0, "where": "client",
		"delta": 1e-3, "secure": true})
	w := newWorker(t, e, client.Settings{})
	l, _ := w.Begin(t.Context(), e.Clients[0], sentTo(e, message.Train), message.ClientState{})
	if l.Noise == nil {
		t.Fatal("no noise")
	}
	_, _, err := l.Noise("x", nil)
	goldentest.WantError(t, err, "the option secure of dp needs noise from a secret")
}
