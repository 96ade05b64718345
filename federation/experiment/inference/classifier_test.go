package inference_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	textprompts "promptfed/federation/methods/parts/prompts"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// classifier returns a client's classifier and its scores of the client's test rows.
func classifier(t *testing.T, w *client.Worker, c *spec.Client, prompts tensor.Map) (graph.Node, *tensor.Tensor) {
	t.Helper()
	n, err := inference.ClassifierGraph(context.Background(), w, c, 4, prompts)
	if err != nil {
		t.Fatal(err)
	}
	feed := tensor.Map{}
	rows := c.Test
	for _, in := range graph.Inputs(n) {
		feed[in.Name()] = map[string]*tensor.Tensor{"image": rows.Views[0].(spec.InMemory).Tensor,
			"patches": rows.Patches[0].(spec.InMemory).Tensor,
			"tokens":  rows.Tokens[0].(spec.InMemory).Tensor,
			"pixels":  rows.Pixels[0].(spec.InMemory).Tensor}[in.Name()]
	}
	model := orttest.Model(t, graph.Output{Name: "scores", Node: n})
	return n, orttest.RunOnce(t, model, ort.Options{}, feed)["scores"]
}

func same(t *testing.T, got, want *tensor.Tensor) {
	t.Helper()
	if !got.SameShape(want) {
		t.Fatalf("%v, expected %v", got, want)
	}
	for i, v := range want.Data {
		if d := math.Abs(float64(got.Data[i] - v)); !(d < 1e-5) {
			t.Fatalf("score %d is %v, expected %v", i, got.Data[i], v)
		}
	}
}

// The classifier of every method has the scores of Predict, and no node of the text tower (the toy's has Tanh).
func TestClassifierIsPredict(t *testing.T) {
	list := map[string]method.Method{"patches": readsAllInputs{}}
	fitting := map[string]map[string]any{"fedtpg": {"heads": 2}} // the toy's prompts are 6 wide
	for _, e := range methods.Table() {
		if e.Wrapper() {
			list[e.Name] = methodtest.Build(t, "promptfl", []string{e.Name}, nil)
		} else {
			list[e.Name] = methodtest.Build(t, e.Name, nil, fitting[e.Name])
		}
	}
	for name, m := range list {
		t.Run(name, func(t *testing.T) {
			e := withMethod(m)
			e.Plan.Rounds = 1
			// The shared parameters of these methods have the size of features, or enter the blocks of a transformer.
			if slices.Contains([]string{"cocoop", "fedapt", "fedclip", "fedlora", "fedmvp", "fedpr", "fedtpg", "ivlp",
				"maple", "pfedmma", "promptsrc"}, name) {
				e.Clients = methodtest.ClientsOfOneBackbone(9, 5, 6, 3)
			}
			r := mustRun(t, e, engine.Settings{})
			w := client.NewWorker(e, client.Settings{})
			defer w.Close()
			for _, c := range e.Clients[:2] {
				want, err := inference.Predict(context.Background(), w, c, len(e.Clients), r.Prompts, c.Test)
				if err != nil {
					t.Fatal(err)
				}
				n, got := classifier(t, w, c, r.Prompts)
				same(t, got, want)
				// the toy's image tower has Tanh, too, and a prompt for each image needs the text tower
				own := slices.Contains([]string{"fedclip", "cocoop", "fedapt", "trip"}, name) ||
					slices.Contains(spec.Reads(e.Method, w.Task(c, 4)), "pixels")
				if !own && slices.ContainsFunc(graph.Reachable(n), func(o *graph.Op) bool { return o.Kind == "Tanh" }) {
					t.Error("the text tower is in the classifier")
				}
			}
		})
	}
}

// A finished run keeps the data that classification with a client's own examples needs, so the examples need not be
// there again. Without it there is one clear error.
func TestMemoryOfAFinishedRun(t *testing.T) {
	m := methodtest.Build(t, "pfedprompt", nil, map[string]any{"tokens": 2})
	e := withMethod(m)
	e.Plan.Rounds, e.Plan.Participation = 1, 0.5
	r := mustRun(t, e, engine.Settings{})
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	for _, c := range e.Clients {
		there, err := inference.Predict(context.Background(), w, c, 4, r.Prompts, c.Test)
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := &spec.Client{ID: c.ID, Backbone: c.Backbone, Train: state.ClientMemory(r.Prompts, c.ID)}
		n, err := inference.Predict(context.Background(), w, elsewhere, 4, r.Prompts, c.Test)
		if err != nil {
			t.Fatal(err)
		}
		same(t, n, there)
		elsewhere.Train = spec.LabelsOnly{0, 1}
		_, err = inference.Predict(context.Background(), w, elsewhere, 4, r.Prompts, c.Test)
		says(t, err, "the client's own examples", "not on this machine")
	}
	if plain := mustRun(t, toy(t), engine.Settings{}); state.ClientMemory(plain.Prompts, 0) != nil {
		t.Error("a run keeps examples that its method does not read")
	}
}

// readsAllInputs reads all inputs that a method may read: patches, parameters outside the text tower, booleans and
// integers computed from them, hand-written prompts and a host function of a parameter.
type readsAllInputs struct{ method.Base }

func (readsAllInputs) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{2, t.Width}, Std: 0.3}, {Name: "bias", Shape: []int{t.Classes},
		Std: 0.5, Owner: method.Private}}
}

func (readsAllInputs) Logits(s *method.Scope) graph.Node {
	text, bias := s.Text(s.Param("ctx")).Add(s.HandText()), s.Param("bias")
	twice := s.Host("twice", method.HostFunc{Every: method.EveryStep,
		Forward: func(in ...*tensor.Tensor) (*tensor.Tensor, method.Pullback, error) {
			t := in[0].Clone()
			t.Axpy(1, in[0])
			return t, nil, nil
		}}, []int{s.Task().Classes}, bias)
	positive := bias.Greater(bias.ScalarLike(0))
	rows := graph.Attrs{"axis": graph.Attr(0), "keepdims": graph.Attr(1)}
	largest := s.Graph().Apply(graph.Standard, "ArgMax", rows, bias)
	scores := s.Cosine(s.Image(), text).Add(s.Patches().Mean(1).MatMulT(text)) // [B,C]
	return positive.Where(scores.Add(twice), scores).Add(scores.Gather(1, largest))
}

// ownEvaluation tests clients with their own parameters after training.
type ownEvaluation struct{ averaged.PromptFL }

func (ownEvaluation) View() method.View { return method.PersonalView }

// A client is tested with the prompt of its method's view. The test computes expected scores from the toy's formula: 4
// x · u/|u| with u_c = tanh(tanh(ctx A)/2 + E_c) W.
func TestClassifierOfAView(t *testing.T) {
	plain := averaged.PromptFL{ClassContext: textprompts.ClassContext{
		Context: textprompts.Context{Tokens: 1, Position: "end"}}}
	merged, mine := methodtest.Values(60, 1, 1, methodtest.Width), methodtest.Values(61, 1, 1, methodtest.Width)
	prompts := tensor.Map{"shared/ctx": merged, "client/1/own/ctx": mine}
	for name, c := range map[string]struct {
		m      method.Method
		client int
		ctx    *tensor.Tensor
	}{"merged": {plain, 1, merged}, "own": {ownEvaluation{plain}, 1, mine},
		"never trained": {ownEvaluation{plain}, 3, merged}} {
		t.Run(name, func(t *testing.T) {
			e := withMethod(c.m)
			one := e.Clients[c.client]
			w := client.NewWorker(e, client.Settings{})
			defer w.Close()
			_, got := classifier(t, w, one, prompts)
			rows := one.Test.Views[0].(spec.InMemory)
			want := tensor.New(rows.Shape[0], len(e.Classes))
			for k := range e.Classes {
				u := toyText(c.ctx.Data, k, 7, 7)
				for i := range rows.Shape[0] {
					for j, x := range rows.Row(i).Data {
						want.Row(i).Data[k] += float32(methodtest.ToyScale * float64(x) * u[j])
					}
				}
			}
			same(t, got, want)
		})
	}
}

// toyText returns the unit feature [dim] of class k with a prompt of one token on a toy backbone.
func toyText(ctx []float32, k, dim, salt int) []float64 {
	const w = methodtest.Width
	u, sum := make([]float64, dim), 0.0
	for h := range w {
		a := 0.0
		for i, x := range ctx {
			a += float64(x) * methodtest.Value(1, i*w+h)
		}
		hidden := math.Tanh(math.Tanh(a)/2 + 0.8*methodtest.Value(2, k*w+h))
		for j := range u {
			u[j] += hidden * methodtest.Value(4+salt, h*dim+j)
		}
	}
	for _, x := range u {
		sum += x * x
	}
	for j := range u {
		u[j] /= math.Sqrt(sum)
	}
	return u
}

// scored is a method with other class scores.
type scored struct {
	averaged.PromptFL
	logits func(*method.Scope) graph.Node
}

func (m scored) Logits(s *method.Scope) graph.Node { return m.logits(s) }

func TestClassifierRefuses(t *testing.T) {
	base := averaged.PromptFL{ClassContext: textprompts.ClassContext{
		Context: textprompts.Context{Tokens: 1, Position: "end"}}}
	prompts := tensor.Map{"shared/ctx": tensor.New(1, methodtest.Width)}
	for _, c := range []struct {
		logits  func(*method.Scope) graph.Node
		prompts tensor.Map
		words   []string
	}{
		{base.Logits, tensor.Map{}, []string{"no shared parameter ctx", "client 0"}},
		{func(s *method.Scope) graph.Node { return s.Param("ctx").MatMulT(s.Param("ctx")) }, prompts,
			[]string{"do not depend on the image"}},
		{func(s *method.Scope) graph.Node {
			return base.Logits(s).Add(s.Label().Cast(graph.Float).Unsqueeze(1))
		}, prompts, []string{"depend on the label"}},
		{func(s *method.Scope) graph.Node {
			f := method.HostFunc{Forward: func(in ...*tensor.Tensor) (*tensor.Tensor, method.Pullback, error) {
				return in[0], nil, nil
			}}
			return base.Logits(s).Add(s.Host("centre", f, []int{1}, s.Image()))
		}, prompts, []string{"host function centre", "computes on image", "cannot be exported"}},
		{func(s *method.Scope) graph.Node { return base.Logits(s).Add(s.State("offset", 4)) }, prompts,
			[]string{"kept/offset", "is not available here"}},
	} {
		e := withMethod(scored{base, c.logits})
		w := client.NewWorker(e, client.Settings{})
		defer w.Close()
		_, err := inference.ClassifierGraph(context.Background(), w, e.Clients[0], 4, c.prompts)
		says(t, err, c.words...)
	}
	e := withMethod(scored{base, func(s *method.Scope) graph.Node {
		return s.Image().SumKeep(1).Add(s.Param("ctx").Reshape(-1).Slice(0, 0, 4)) // a number for each class
	}})
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	_, err := inference.TextFeatures(context.Background(), w, e.Clients[0], 4, prompts)
	says(t, err, "do not compare images with class features [4,5]")
	// A round has no accuracy if nobody was tested in it, or only client 1.
	tested := record.Evaluations{Global: &metrics.Evaluation{PerClient: []float64{1}}}
	for _, r := range []record.Record{{}, {Answered: []int{1}, Evaluations: tested}} {
		if accuracy, ok := inference.Accuracy(w, e.Clients[0], 4, r); ok {
			t.Errorf("%+v gives client 0 an accuracy of %g", r, accuracy)
		}
	}
}
