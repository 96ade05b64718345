package engine

import (
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

// TestRefuseTests: a reply to a test is refused whose counts of classes or bins of confidence are not of the examples
// that it counts, and so are tensors that nobody asked for.
func TestRefuseTests(t *testing.T) {
	scores := tensor.Of([]float32{3, 1, 0, 5, 2, 1}, 3, 2)
	labels := []int64{0, 1, 1}
	good := func() Reply { // by hand: classes 0, 1, 1 are taken for 0, 1, 0
		h := hits(scores, labels, labels)
		h.counts = confusion(scores, labels)
		r := Reply{Scores: Scores{Examples: 3, Global: &h}}
		r.Upload.Extra = r.Scores.counts()
		return r
	}
	ask := Order{Kind: Test, Counts: true}
	if err := ask.Refuse(good(), false); err != nil {
		t.Fatal(err)
	}
	if got := good().Upload.Extra[globalCounts].Ints; len(got) != 9 || got[0] != 0 || got[1] != 0 || got[3] != 1 ||
		got[4] != 0 || got[6] != 1 || got[7] != 1 {
		t.Errorf("counts %v", got)
	}
	if (Order{Kind: Test}).Refuse(good(), false) == nil {
		t.Error("counts that nobody asked for are taken")
	}
	for name, change := range map[string]func(*Reply){
		"one example too many": func(r *Reply) { r.Upload.Extra[globalCounts].Ints[2]++ },
		"another right answer": func(r *Reply) { r.Upload.Extra[globalCounts].Ints[4] = 1 },
		"a negative class":     func(r *Reply) { r.Upload.Extra[globalCounts].Ints[0] = -1 },
		"a negative count":     func(r *Reply) { r.Upload.Extra[globalCounts].Ints[2] = -1 },
		"an overflowing count": func(r *Reply) { r.Upload.Extra[globalCounts].Ints[2] = math.MaxInt64 },
		"another shape":        func(r *Reply) { r.Upload.Extra[globalCounts] = tensor.OfInts([]int64{0, 0}, 1, 2) },
		"floats":               func(r *Reply) { r.Upload.Extra[globalCounts] = tensor.New(1, 3) },
		"an unknown tensor":    func(r *Reply) { r.Upload.Extra["x"] = tensor.New(1) },
		"of no evaluation":     func(r *Reply) { r.Upload.Extra[personalCounts] = r.Upload.Extra[globalCounts] },
		"parameters":           func(r *Reply) { r.Upload.Shared = tensor.Map{"ctx": tensor.New(1)} },
		"fewer bins":           func(r *Reply) { r.Scores.Global.Calibration = r.Scores.Global.Calibration[1:] },
		"more own answers":     func(r *Reply) { r.Scores.Global.Own = 4 },
		"no examples":          func(r *Reply) { r.Scores.Examples = 0 },
	} {
		r := good()
		change(&r)
		if ask.Refuse(r, false) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := (Order{Kind: Validate}).Refuse(Reply{}, false); err != nil {
		t.Errorf("a client without validation data: %v", err)
	}
	// Classes that the experiment does not have are left out by the server, which alone knows how many there are.
	if c := confusionOf(0, 1, []Reply{good()}); c != nil {
		t.Errorf("%+v", c)
	}
}
