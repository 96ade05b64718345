package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

// withMethod returns an experiment with a method on clients of one backbone.
func withMethod(t *testing.T, base string, with []string, o map[string]any) *spec.Experiment {
	t.Helper()
	m := enginetest.Build(t, base, with, o)
	e := experiment()
	e.Method, e.Clients = m, methodtest.ClientsOfOneBackbone(9, 5)
	return e
}

// reads is a method whose class scores read one thing that is bound to classes.
type reads struct {
	method.Method
	what string
}

func (m reads) Logits(s *method.Scope) graph.Node {
	x := m.Method.Logits(s)
	switch m.what {
	case "memory":
		x = x.Add(s.Input(method.MemoryImage, graph.Float, graph.Rows("N", s.Task().Dim)).Sum())
	case "state":
		x = x.Add(s.State("seen", s.Task().Classes))
	case "local classes":
		x = x.Add(s.Input(method.LocalClassesInput, graph.Float, graph.Static(s.Task().Classes)).Sum())
	case "templates":
		texts := s.HandText("b {}", "a {}").Add(s.TextFeatures(method.Prompt{Template: "c {}"}))
		x = s.Cosine(s.Image(), texts.Add(s.HandText()))
	}
	return x
}

// A client can be tested on an evaluation set if its labels are classes of the set, for each backbone. Other classes
// need a method that is not bound to those of training.
func TestEvaluationSets(t *testing.T) {
	build := func(labels ...int64) map[string]*spec.Features {
		return map[string]*spec.Features{
			"toy-a": {Class: labels}}
	}
	for _, c := range []struct {
		method string
		o      map[string]any
		reads  string
		sets   []spec.EvaluationSet
		says   string
	}{
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Test: build(0, 3)},
			{Name: "b", Classes: []string{"x", "y"}, Test: build(1)}}, ""},
		{"promptfl", nil, "", []spec.EvaluationSet{{Test: build(0)}},
			`evaluation set "": the name is empty or used twice`},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Test: build(0)}, {Name: "a", Test: build(0)}},
			`evaluation set "a": the name is empty or used twice`},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a"}}, "evaluation set a has no examples for backbone toy-a"},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Test: build()}},
			"evaluation set a has no examples for backbone toy-a"},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Test: build(4)}},
			"evaluation set a has label 4, but there are 4 classes"},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Test: build(-1)}},
			"evaluation set a has label -1, but there are 4 classes"},
		{"promptfl", nil, "", []spec.EvaluationSet{{Name: "a", Classes: []string{"x"}, Test: build(1)}},
			"evaluation set a has label 1, but there are 1 classes"},
		{"promptfl", map[string]any{"class_specific": true, "tokens": 2}, "",
			[]spec.EvaluationSet{{Name: "a", Test: build(1)}}, ""},
		{"promptfl", map[string]any{"class_specific": true, "tokens": 2}, "",
			[]spec.EvaluationSet{{Name: "a", Classes: []string{"x"}, Test: build(0)}},
			"evaluation set a: the method learns ctx [4 2 6] for 4 classes, which cannot be used for other " +
				"classes; remove the evaluation set or use another method"},
		{"promptfl", nil, "memory", []spec.EvaluationSet{{Name: "a", Classes: []string{"x"}, Test: build(0)}},
			"the method classifies with the clients' own examples, which belong to other classes"},
		{"promptfl", nil, "state", []spec.EvaluationSet{{Name: "a", Classes: []string{"x"}, Test: build(0)}},
			"the method's class scores read kept/seen [4], which cannot be used for other classes"},
		{"promptfl", nil, "local classes", []spec.EvaluationSet{{Name: "a", Classes: []string{"x"}, Test: build(0)}},
			""},
	} {
		e := withMethod(t, c.method, nil, c.o)
		e.Method, e.EvaluationSets = reads{e.Method, c.reads}, c.sets
		err := e.CheckEvaluationSets()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v %s: %v, want %q", c.method, c.o, c.reads, err, c.says)
		}
	}
}

func TestSynthetic(t *testing.T) {
	for says, s := range map[string]spec.Synthetic{"": {Epochs: 1, Data: &spec.Features{Class: []int64{0, 3}}},
		"synthetic.epochs: 0 must be 1 or more": {Data: &spec.Features{Class: []int64{0}}},
		"the synthetic set has no images":       {Epochs: 1, Data: spec.LabelsOnly{1}},
		"the synthetic set has label 4, but there are 4 classes": {Epochs: 1,
			Data: &spec.Features{Class: []int64{0, 4}}},
		"the synthetic set has label -1, but there are 4 classes": {Epochs: 1,
			Data: &spec.Features{Class: []int64{-1}}},
	} {
		if err := s.Check(4); (err == nil) != (says == "") || err != nil && err.Error() != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
	far := spec.LabelsOnly{2, 1}
	if _, err := far.Batch(nil, nil); err == nil || far.Order(nil) != nil ||
		!slices.Equal(far.Labels(), []int64{2, 1}) {
		t.Error(err)
	}
}

// A method reads the large inputs that its graphs contain, and the client's memory where class scores read it.
func TestReads(t *testing.T) {
	for method, want := range map[string]string{"promptfl": "[]", "fedvpt": "[pixels]"} {
		e := withMethod(t, method, nil, nil)
		if got := fmt.Sprint(e.Reads(e.Clients[0].Backbone)); got != want {
			t.Errorf("%s reads %s, want %s", method, got, want)
		}
		if spec.UsesMemory(e.Method, e.Task(e.Clients[0])) || !spec.UsesMemory(reads{e.Method, "memory"},
			e.Task(e.Clients[0])) {
			t.Errorf("%s: memory", method)
		}
	}
	e := withMethod(t, "promptfl", nil, nil)
	e.Method = reads{e.Method, "templates"}
	if got := e.Templates(e.Clients[0].Backbone); !slices.Equal(got, []string{"a {}", "b {}", "c {}"}) {
		t.Error(got)
	}
	if !spec.IsRow(method.Input{Kind: method.RowInput, Name: "image"}) || spec.IsRow(method.MemoryImage) {
		t.Error("inputs of a batch")
	}
	if got := spec.Sentence("a {} of {}.", "cat"); got != "a cat of cat." {
		t.Error(got)
	}
	c := methodtest.ClientsOfOneBackbone(6)[0]
	if got := c.Classes(); !slices.Equal(got, []int64{0, 1, 2, 3}) {
		t.Error(got)
	}
	m, err := spec.Memory(c, 1)
	if err != nil || m["image"].Shape[0] != 6 || !slices.Equal(m["label"].Ints, c.Train.Labels()) {
		t.Error(m, err)
	}
}

// Steps of several clients go in one run where only prompts of their own go through the text tower.
func TestNotBatchable(t *testing.T) {
	for _, c := range []struct {
		method string
		o      map[string]any
		want   string
	}{{"promptfl", nil, ""}, {"fedvpt", nil, "the image tower runs in every step"},
		{"cocoop", map[string]any{"reduce": 2}, "the text tower runs for each image"},
		{"zeroshot", nil, "no learned prompt goes through the text tower"}} {
		e := withMethod(t, c.method, nil, c.o)
		b := e.Clients[0].Backbone
		for clients, want := range map[int]string{0: "", 1: "", 2: c.want} {
			if e.BatchClients = clients; e.NotBatchable(b) != want {
				t.Errorf("%s, %d clients: %q, want %q", c.method, clients, e.NotBatchable(b), want)
			}
		}
		e.BatchClients, e.Training.Shared = 2, true
		if e.NotBatchable(b) != "clients share one optimizer" {
			t.Errorf("%s: %q", c.method, e.NotBatchable(b))
		}
	}
	e := withMethod(t, "zeroshot", nil, nil)
	e.Method, e.BatchClients = reads{e.Method, "templates"}, 2 // the text tower reads templates, no learned prompt
	goldentest.Contains(t, e.NotBatchable(e.Clients[0].Backbone), "no learned prompt")
}

// By hand: 10 rows, at most 4 at a time, are 3 parts of 4 rows at most; 9 are 3 of 3.
func TestMicrobatchSize(t *testing.T) {
	for _, c := range [][3]int{{10, 4, 4}, {9, 4, 3}, {9, 0, 9}, {9, 9, 9}, {9, 10, 9}, {9, 8, 5}, {8, 4, 4},
		{4, 1, 1}} {
		if got := spec.MicrobatchSize(c[0], c[1]); got != c[2] {
			t.Errorf("%d rows, at most %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// The memory of a step bounds its rows, and its classes where not all fit. A text prompt for each image and PromptFL's
// take 4·4·4·6 bytes (four classes, four tokens of width 6), prompts of two tokens for each class 4·4·2·6.
func TestMemory(t *testing.T) {
	image := withMethod(t, "cocoop", nil, map[string]any{"reduce": 2})
	class := withMethod(t, "promptfl", nil, map[string]any{"class_specific": true, "tokens": 2})
	plain := withMethod(t, "promptfl", nil, map[string]any{"tokens": 4})
	b := plain.Clients[0].Backbone
	const perImage, perClass = 4 * 4 * 4 * 6, 4 * 4 * 2 * 6
	for _, c := range []struct {
		e      *spec.Experiment
		memory int
		rows   int // at most
		says   string
	}{
		{plain, 0, 0, ""}, {plain, perImage, 0, ""},
		{plain, perImage - 1, 0, "the text tower: 2 of 4 classes at a time"},
		{plain, perImage/2 - 1, 0, "the text tower: 1 of 4 classes at a time"},
		{image, 0, 4 << 30 / perImage, "a text prompt for each image: 4 at a time of a batch of 4"},
		{image, 8 * perImage, 8, "a text prompt for each image: 4 at a time of a batch of 4"},
		{image, 4*perImage - 1, 3, "a text prompt for each image: 2 at a time of a batch of 4"},
		{image, perImage, 1, "a text prompt for each image: 1 at a time of a batch of 4"},
		{image, perImage - 1, 1, "a text prompt for each image: 1 at a time of a batch of 4, 2 of 4 classes at a time"},
		{class, perClass, 0, "a text prompt for each class"}, {class, 0, 0, "a text prompt for each class"},
		{class, perClass - 1, 0, "a text prompt for each class: 2 of 4 classes at a time"},
	} {
		c.e.Training.Memory = c.memory
		note, err := c.e.MemoryNote(b, graph.CPUKernels)
		if c.says != "" {
			tail, ok := strings.CutPrefix(note, c.says)
			if err != nil || !ok || strings.Contains(tail, "at a time") ||
				!strings.HasSuffix(tail, "about 0.00 GiB in each worker (train.memory_gb)") {
				t.Errorf("%d bytes: %q, %v, want %q", c.memory, note, err, c.says)
			}
		} else if note != "" || err != nil {
			t.Errorf("%d bytes: %q, %v", c.memory, note, err)
		}
		s := method.NewScope(c.e.Task(c.e.Clients[0]), c.e.Method.Params(c.e.Task(c.e.Clients[0])))
		m, err := spec.MemoryOf(b, c.e.Classes, c.memory, c.e.Method.Logits(s))
		if err != nil || m.Rows() != c.rows {
			t.Errorf("%d bytes: %d rows, %v, want %d", c.memory, m.Rows(), err, c.rows)
		}
	}
}

// A step with both kinds of prompts, of two tokens, has what those of classes leave: 4·4·2·6 bytes for them, at most
// a quarter of all, and as much for each image.
func TestMemoryOfBothPrompts(t *testing.T) {
	e := withMethod(t, "promptfl", nil, nil)
	c := e.Clients[0]
	s := method.NewScope(e.Task(c), nil)
	each := s.Graph().Input("image prompts", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(2),
		graph.StaticDim(6)})
	own := s.Graph().Input("param/own", graph.Float, graph.Static(4, 2, 6))
	roots := []graph.Node{s.TextFeatures(method.Prompt{Ctx: each}),
		s.TextFeatures(method.Prompt{Ctx: own, PerClass: true})}
	for bound, want := range map[int]int{192 * 5: 4, 192*5 - 1: 3, 192 * 4: 3, 192 * 3: 2, 192: 1} {
		m, err := spec.MemoryOf(c.Backbone, e.Classes, bound, roots...)
		if err != nil || m.Rows() != want {
			t.Errorf("%d bytes: %d, %v, want %d", bound, m.Rows(), err, want)
		}
	}
}

// Images in the image tower leave a quarter to the text tower if its classes, which take 4·4·16·6 bytes for 16
// tokens, need as much, and all that they do not need.
func TestMemoryOfBothTowers(t *testing.T) {
	e := withMethod(t, "ivlp", nil, map[string]any{"tokens": 16, "vision_tokens": 2})
	b := e.Clients[0].Backbone
	task := b.Task()
	image := clip.BlocksStepBytes(5, task.VisionWidth, task.VisionUnits, task.VisionLayers, false)
	const text = 4 * 4 * 16 * 6
	for memory, want := range map[int]string{
		4*image + text:     "4 at a time of a batch of 4, about",
		4*image + text - 1: "2 at a time of a batch of 4, about",
		image*4/3 - 8:      "step needs about 0.0 GiB for one image",
		image*4/3 + 4:      "1 at a time of a batch of 4, 1 of 4 classes at a time, about",
		image + text/2:     "1 at a time of a batch of 4, 2 of 4 classes at a time, about",
		image + text:       "1 at a time of a batch of 4, about",
	} {
		e.Training.Memory = memory
		note, err := e.MemoryNote(b, graph.CPUKernels)
		if err != nil {
			note = err.Error()
		}
		if !strings.Contains(note, want) {
			t.Errorf("%d bytes: %q, want %q", memory, note, want)
		}
	}
}

// The memory of the image tower is that of its blocks for the tokens of an image (a class token, two patches and two
// learned tokens), and less if nothing in the tower is learned. A loss that compares images needs the whole batch.
func TestMemoryOfTheImageTower(t *testing.T) {
	e := withMethod(t, "fedvpt", nil, map[string]any{"vision_tokens": 2})
	b := e.Clients[0].Backbone
	task := b.Task()
	image := clip.BlocksStepBytes(5, task.VisionWidth, task.VisionUnits, task.VisionLayers, false)
	for _, images := range []int{1, 3} {
		e.Training.Memory = images*image + 5
		want := fmt.Sprintf("the image tower in every step: %d at a time of a batch of 4", (images+1)/2) // 3: twice 2
		if note, err := e.MemoryNote(b, graph.CPUKernels); err != nil || !strings.HasPrefix(note, want) {
			t.Errorf("%q, %v, want %s", note, err, want)
		}
	}
	e = withMethod(t, "fedlora", nil, map[string]any{"towers": "image"})
	lora := clip.BlocksStepBytes(3, task.VisionWidth, task.VisionUnits, task.VisionLayers, true)
	for memory, says := range map[int]string{4 * lora: "the image tower in every step: 4 at a time of a batch of 4",
		4*lora - 1: "the image tower in every step: a step needs about 0.0 GiB for a batch of 4, " +
			"whose images the loss compares, but train.memory_gb"} {
		e.Training.Memory = memory
		note, err := e.MemoryNote(b, graph.CPUKernels)
		if err != nil {
			note = err.Error()
		}
		if !strings.HasPrefix(note, says) {
			t.Errorf("%d: %q, want %q", memory, note, says)
		}
	}
}

// Fingerprints differ where experiments train differently, and not where they are the same.
func TestFingerprints(t *testing.T) {
	build := func(change func(e *spec.Experiment)) string {
		e := experiment()
		if change != nil {
			change(e)
		}
		return e.Fingerprint()
	}
	seen := map[string]int{build(nil): -1}
	for i, change := range []func(e *spec.Experiment){
		func(e *spec.Experiment) { e.Plan.Poisson = true }, func(e *spec.Experiment) { e.Secure = "on" },
		func(e *spec.Experiment) { e.Secure = "other" },
		func(e *spec.Experiment) { e.Precision = "full" }, func(e *spec.Experiment) { e.BatchClients = 2 },
		func(e *spec.Experiment) { e.Reproduces = []string{"x"} },
		func(e *spec.Experiment) { e.Clients = e.Clients[:3] },
		func(e *spec.Experiment) { e.Clients = nil }, func(e *spec.Experiment) { e.Clients, e.Plan.Clients = nil, 1 },
		func(e *spec.Experiment) { e.Clients, e.EvaluationSets = nil, []spec.EvaluationSet{{Name: "x"}} },
	} {
		f := build(change)
		if other, there := seen[f]; there || len(f) != 32 {
			t.Errorf("changes %d and %d have the fingerprint %s", other, i, f)
		}
		seen[f] = i
	}
	for i, change := range []func(e *spec.Experiment){func(e *spec.Experiment) { e.Precision = "half" },
		func(e *spec.Experiment) { e.BatchClients = 1 }, func(e *spec.Experiment) { e.Plan.Rounds++ }} {
		if build(change) != build(nil) {
			t.Errorf("change %d of nothing changes the fingerprint", i)
		}
	}
	p := experiment().PlanFor([]message.Participant{{Joined: true, Task: method.ClientSpec{Backbone: "b"}}, {}})
	if p.Clients != 2 || p.Infos[0].Backbone != "b" || p.Seed != 5 {
		t.Errorf("%+v", p)
	}
}
