package record

import (
	"math"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/tensor"
)

// TestRefuseTests: a reply to a test is refused whose counts of classes or bins of confidence are not of the examples
// that it counts, and so are tensors that nobody asked for.
func TestRefuseTests(t *testing.T) {
	scores := tensor.Of([]float32{3, 1, 0, 5, 2, 1}, 3, 2)
	labels := []int64{0, 1, 1}
	good := func() message.Reply { // by hand: classes 0, 1, 1 are taken for 0, 1, 0
		h := metrics.Classify(scores, labels, labels)
		h.Confusion = metrics.ConfusionCounts(scores, labels)
		r := message.Reply{Scores: message.Scores{Examples: 3, Global: &h}}
		r.Upload.Extra = r.Scores.ConfusionTensors()
		return r
	}
	ask := message.Instruction{Kind: message.Test, Confusion: true}
	if err := ask.Check(good()); err != nil {
		t.Fatal(err)
	}
	if got := good().Upload.Extra[message.GlobalCounts].Ints; len(got) != 9 || got[0] != 0 || got[1] != 0 ||
		got[3] != 1 ||
		got[4] != 0 || got[6] != 1 || got[7] != 1 {
		t.Errorf("counts %v", got)
	}
	if (message.Instruction{Kind: message.Test}).Check(good()) == nil {
		t.Error("counts that nobody asked for are taken")
	}
	for name, change := range map[string]func(*message.Reply){
		"one example too many": func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts].Ints[2]++ },
		"another right answer": func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts].Ints[4] = 1 },
		"a negative class":     func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts].Ints[0] = -1 },
		"a negative count":     func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts].Ints[2] = -1 },
		"an overflowing count": func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts].Ints[2] = math.MaxInt64 },
		"another shape": func(r *message.Reply) {
			r.Upload.Extra[message.GlobalCounts] = tensor.OfInts([]int64{0,
				0}, 1, 2)
		},
		"floats":            func(r *message.Reply) { r.Upload.Extra[message.GlobalCounts] = tensor.New(1, 3) },
		"an unknown tensor": func(r *message.Reply) { r.Upload.Extra["x"] = tensor.New(1) },
		"of no evaluation": func(r *message.Reply) {
			r.Upload.Extra[message.PersonalCounts] = r.Upload.Extra[message.GlobalCounts]
		},
		"parameters":       func(r *message.Reply) { r.Upload.Shared = tensor.Map{"ctx": tensor.New(1)} },
		"fewer bins":       func(r *message.Reply) { r.Scores.Global.Calibration = r.Scores.Global.Calibration[1:] },
		"more own answers": func(r *message.Reply) { r.Scores.Global.CorrectOwn = 4 },
		"no examples":      func(r *message.Reply) { r.Scores.Examples = 0 },
	} {
		r := good()
		change(&r)
		if ask.Check(r) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := (message.Instruction{Kind: message.Validate}).Check(message.Reply{}); err != nil {
		t.Errorf("a client without validation data: %v", err)
	}
	// Classes that the experiment does not have are left out by the server, which alone knows how many there are.
	if c := ConfusionOf(0, 1, []message.Reply{good()}); c != nil {
		t.Errorf("%+v", c)
	}
}
