package record

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// TestRefuseTests: a reply to a test is refused if its counts of classes or bins of confidence do not match its number
// of examples, or if it has tensors that nobody requested.
func TestRefuseTests(t *testing.T) {
	scores := tensor.Of([]float32{3, 1, 0, 5, 2, 1}, 3, 2)
	labels := []int64{0, 1, 1}
	good := func() message.Reply { // by hand: classes 0, 1, 1 are predicted as 0, 1, 0
		evaluation := metrics.Compute(metrics.Examples{Scores: scores, Labels: labels, Own: labels}, true)
		return message.Reply{Scores: message.Scores{Examples: 3, Global: evaluation}}
	}
	ask := message.Instruction{Kind: message.Test, Confusion: true}
	goldentest.NoError(t, ask.Check(good()))
	if got := fmt.Sprint(good().Scores.Global["confusion"]); got != "[0 0 1 1 0 1 1 1 1]" {
		t.Errorf("counts %v", got)
	}
	withheld := good()
	delete(withheld.Scores.Global, "confusion")
	if err := ask.Check(withheld); err != nil {
		t.Errorf("a client that withholds its matrix: %v", err)
	}
	for _, kind := range []message.Kind{message.Test, message.Validate, message.Adapt} {
		if o := (message.Instruction{Kind: kind, Confusion: kind != message.Test}); o.Check(good()) == nil {
			t.Errorf("%s: counts that nobody asked for are taken", kind)
		}
	}
	counts := func(r *message.Reply) []float64 { return r.Scores.Global["confusion"] }
	for name, change := range map[string]func(*message.Reply){
		"one example too many": func(r *message.Reply) { counts(r)[2]++ },
		"another right answer": func(r *message.Reply) { counts(r)[4] = 1 },
		"a negative class":     func(r *message.Reply) { counts(r)[0] = -1 },
		"a negative count":     func(r *message.Reply) { counts(r)[2] = -1 },
		"an overflowing count": func(r *message.Reply) { counts(r)[2] = math.MaxInt64 },
		"another order":        func(r *message.Reply) { counts(r)[1] = 1 },
		"a part of a row":      func(r *message.Reply) { r.Scores.Global["confusion"] = counts(r)[:8] },
		"an unknown tensor":    func(r *message.Reply) { r.Upload.Extra = tensor.Map{"x": tensor.New(1)} },
		"parameters":           func(r *message.Reply) { r.Upload.Shared = tensor.Map{"ctx": tensor.New(1)} },
		"an unknown statistic": func(r *message.Reply) { r.Scores.Global["x"] = []float64{1} },
		"fewer bins": func(r *message.Reply) {
			r.Scores.Global["confidence_bins"] = r.Scores.Global["confidence_bins"][3:]
		},
		"no bins":          func(r *message.Reply) { delete(r.Scores.Global, "confidence_bins") },
		"more own answers": func(r *message.Reply) { r.Scores.Global["own_correct"][0] = 4 },
		"no number":        func(r *message.Reply) { r.Scores.Global["f1"][0] = math.NaN() },
		"no examples":      func(r *message.Reply) { r.Scores.Examples = 0 },
		"too many":         func(r *message.Reply) { r.Scores.Examples = 1<<32 + 1 },
		"no evaluation":    func(r *message.Reply) { r.Scores.Global = nil },
	} {
		r := good()
		change(&r)
		if ask.Check(r) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// Tensors of another shape or type, of an evaluation that the reply lacks, and of an unknown name.
	table := tensor.OfInts([]int64{0, 0, 3}, 1, 3)
	for name, m := range map[string]tensor.Map{"another shape": {"global/confusion": tensor.OfInts([]int64{0, 0}, 1,
		2)},
		"floats": {"global/confusion": tensor.New(1, 3)}, "of no evaluation": {"personal/confusion": table},
		"of an unknown evaluation": {"x/confusion": table}, "an unknown table": {"global/x": table},
		"a list as a tensor": {"global/correct": tensor.OfInts([]int64{1}, 1)}} {
		if r, err := ask.WithReplyTensors(good(), tensor.Map{}.Put("statistics", m)); err == nil {
			t.Errorf("%s: taken: %v", name, r.Scores)
		}
	}
	if err := (message.Instruction{Kind: message.Validate}).Check(message.Reply{}); err != nil {
		t.Errorf("a client without validation data: %v", err)
	}
	ask.Classes = 1
	if err := ask.Check(good()); err == nil {
		t.Error("a class that the experiment does not have is taken")
	}
	if c := ConfusionOf(0, 2, []message.Reply{good(), withheld}); c.Clients != 1 || c.Personal != nil ||
		fmt.Sprint(c.Global.Counts, *c.Global.PerClass[1]) != "[[0 0 1] [1 0 1] [1 1 1]] 0.5" {
		t.Errorf("%+v", c)
	}
}
