package experiment

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/engine/record"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// TestValidationData: clients are validated on a quarter of their training images, on a fifth of a pool, or on
// synthetic validation images. Test data and validation data have different images.
func TestValidationData(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"val_share": func(c *Config) { c.Data.ValShare = 0.25 },
		"pooled":    func(c *Config) { c.Data.Split = "pooled" },
		"synthetic": func(c *Config) { c.Data.Generator.Val = 2 },
	} {
		c := smallConfig("promptfl")
		c.Eval.Select, c.Train.Patience = BestVal, 2
		change(&c)
		b := open(t, c)
		r := finish(t, b)
		at := r.Summary.AtBestVal
		if at == nil || r.Summary.Select != BestVal || len(r.Records[0].Validation.Examples) != 3 {
			t.Fatalf("%s: %+v", name, r.Summary)
		}
		n, trained := 0, 0
		for i, p := range b.Task.Data.Parts {
			train, val, test := p.Of(b.Task.Data.Set)
			n, trained = n+len(val), trained+len(train)
			if got := r.Records[0].Validation.Examples[i]; got != len(val) || got == 0 {
				t.Errorf("%s: client %d was validated on %d images and has %d", name, i, got, len(val))
			}
			ids := map[string]bool{}
			for _, e := range slices.Concat(train, val, test) {
				if ids[e.ID] {
					t.Errorf("%s: client %d has %s twice", name, i, e.ID)
				}
				ids[e.ID] = true
			}
			if b.Experiment.Clients[i].Val.Len() != len(val) || b.Task.Clients().Clients[i].Val == nil {
				t.Errorf("%s: client %d", name, i)
			}
		}
		if want := map[string]int{"val_share": 6, "synthetic": 16}[name]; want > 0 && n != want {
			t.Errorf("%s: %d validation images, want %d", name, n, want)
		}
		// Every image is dealt here, so the printed sizes must be those of the clients together.
		if sp := b.Task.Info.Splits; sp[0].Name == "train" && (sp[0].Images != trained || sp[1].Images != n) {
			t.Errorf("%s: clients train on %d images and are validated on %d, the sizes are %+v", name, trained, n, sp)
		}
	}
	none := smallConfig("promptfl")
	none.Eval.Select = BestVal
	if _, err := opened(Open(t.Context(), none, nil)); !errors.Is(err, record.ErrNoValidation) {
		t.Errorf("nobody has validation data: %v", err)
	}
	c := smallConfig("promptfl")
	c.Data.Generator.Val, c.Data.ValShare = 2, 0.2
	refuses(t, c, "data.val_share", "already has 16 validation images")
	c.Data.ValShare, c.Eval.Validate = 0, false
	if r := finish(t, open(t, c)); r.Records[0].Validation != nil {
		t.Error("nobody is to be validated")
	}
	c = smallConfig("promptsrc")
	c.Train.Patience = 1
	refuses(t, c, "train.patience: the method makes its result in the last round")
}

// TestNeverTrain: one client of four, drawn by the seed, comes last and never trains. It is tested apart from the
// others.
func TestNeverTrain(t *testing.T) {
	c := smallConfig("fedpha")
	c.Options = map[string]any{"local_tokens": []int{2}}
	c.Partition.Clients, c.Eval.NewClients, c.Eval.NewSteps = 4, 1, []int{0, 2}
	plain := c
	plain.Eval.NewClients = 0
	b, other := open(t, c), open(t, plain)
	r := finish(t, b)
	for _, rec := range r.Records {
		if !slices.Equal(rec.Clients, []int{0, 1, 2}) || len(rec.Evaluation.PerClient) != 3 || rec.Unanswered != nil {
			t.Errorf("round %d: %v trained, %d were tested", rec.Round, rec.Clients, len(rec.Evaluation.PerClient))
		}
	}
	for _, steps := range []string{"0", "2"} {
		if x := r.Summary.NewClients[steps]; x.Evaluation == nil || x.Examples != len(b.Task.Data.Parts[3].Test) ||
			len(x.Evaluation.PerClient) != 1 {
			t.Errorf("after %s steps: %+v", steps, x)
		}
	}
	info := b.Task.Clients()
	if len(info.Known()) != 3 || !info.Clients[3].New || info.Clients[0].New {
		t.Errorf("%+v", info)
	}
	same := 0
	for _, p := range b.Task.Data.Parts { // the same parts in another order
		for _, q := range other.Task.Data.Parts {
			if slices.Equal(p.Train, q.Train) && slices.Equal(p.Test, q.Test) {
				same++
			}
		}
	}
	if len(b.Task.Data.Parts) != 4 || same != 4 {
		t.Errorf("%d of %d parts are those of the partition", same, len(b.Task.Data.Parts))
	}
	c.Eval.NewClients = 4
	refuses(t, c, "eval.new_clients", "one client must train")
	c.Eval.NewClients, c.Eval.NewSteps = 1, []int{3, 3}
	refuses(t, c, "eval.new_steps", "once")
	c.Eval.NewSteps, c.Data.Shots = nil, -1
	refuses(t, c, "data.shots: -1; it must be 0 or more")
}

// TestEvaluationElsewhere: a server of remote clients selects only by data that it has, and neither side sends counts
// of classes unless configured.
func TestEvaluationElsewhere(t *testing.T) {
	c := smallConfig("promptfl")
	c.Eval.Select = BestVal
	if _, err := OpenServer(c, false); err == nil {
		t.Error("the best round's parameters are not here, and that is accepted")
	}
	for confusion, want := range map[string]bool{localOnly: false, everyone: true, nobody: false} {
		c := smallConfig("promptfl")
		c.Eval.Confusion = confusion
		server, err := OpenServer(c, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []ClientPlace{{Client: 1, Of: 3, Partition: true}, {Client: 1, Of: 3}} {
			client, err := OpenClient(context.Background(), c, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if server.Experiment.Evaluate.Confusion != want || client.Experiment.Evaluate.Confusion != want {
				t.Errorf("%s: server %v, client %v", confusion, server.Experiment.Evaluate.Confusion,
					client.Experiment.Evaluate.Confusion)
			}
		}
		if here := open(t, c); here.Experiment.Evaluate.Confusion != (confusion != nobody) {
			t.Errorf("%s: %v in one process", confusion, here.Experiment.Evaluate.Confusion)
		}
	}
}

// TestWrongLabels: a folder with class names in another order than its images is detected before training; the right
// order passes.
func TestWrongLabels(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Generator.Train, c.Data.Generator.Test, c.Data.Generator.Difficulty = 3, 6, 0
	c.Train.Rounds = 1
	if s := finish(t, open(t, c)).Summary; len(s.Warnings) != 0 || len(s.ZeroShot) != 1 ||
		s.ZeroShot[0].Accuracy <= s.ZeroShot[0].Chance {
		t.Errorf("%q, %+v", s.Warnings, s.ZeroShot)
	}
	c.Data.ClassNames = map[string]string{"circle": "square", "square": "star", "star": "house", "house": "circle"}
	if s := finish(t, open(t, c)).Summary; len(s.Warnings) != 1 {
		t.Errorf("class names moved by one place: %+v", s.ZeroShot)
	}
}

// OpenValidation reads no test image, of the data and of evaluation sets: those of these folders cannot be read. A run
// tests on the validation images, and is not validated.
func TestOpenValidation(t *testing.T) {
	var names []string
	for _, dir := range []string{"train", "val", "test"} {
		for i := range 8 {
			name := dir + "/%s/" + string(rune('a'+i)) + ".png"
			names = append(names, fmt.Sprintf(name, "cat"), fmt.Sprintf(name, "dog"))
		}
	}
	c := smallConfig("promptfl")
	c.Data.Set, c.Data.Root, c.Eval.Sets = "folder", datatest.Tree(t, names...), []string{"folder"}
	c.Runtime.Cache = t.TempDir()
	for _, name := range names {
		if strings.HasPrefix(name, "test") {
			filetest.Write(t, filepath.Join(c.Data.Root, name), "no image")
		}
	}
	b, err := opened(OpenValidation(t.Context(), c, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := finish(t, b).Records[1]
	if r.Validation != nil || len(r.Evaluation.PerClient) != 3 || r.EvaluationSets["folder"].Examples != 16 {
		t.Errorf("%+v", r)
	}
	d := b.Task.Data
	for _, e := range slices.Concat(d.Set.Train, d.Set.Val, d.Set.Test, d.evaluationSets[0].examples) {
		if strings.Contains(e.ID, "test/") {
			t.Errorf("the experiment has %s", e.ID)
		}
	}
	if _, err = opened(Open(t.Context(), c, nil)); err == nil {
		t.Error("Open reads no test image")
	}
	c.Data.Split = "pooled"
	_, err = OpenValidation(context.Background(), c, nil)
	goldentest.WantError(t, err, "no validation images")
}
