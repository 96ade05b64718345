package pretrain

import (
	"math/rand/v2"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// With two equally likely wordings and a share of 0.4, captions of the careless wording name the next class in 40 of
// 100 cases, and the others never; 5,000 captions have a standard error of 0.7 %.
func TestCareless(t *testing.T) {
	w := writer{careless: Careless{Wordings: []string{"a photo of"}, Share: 0.4},
		fits: func(string) bool { return true }}
	rng := rand.New(rand.NewPCG(1, 2))
	templates := []string{"a photo of {a}", "this is {a}"}
	classes := []string{"cat", "dog", "owl"}
	careless, wrong := 0, 0
	for range 10000 {
		text, err := w.write(rng, "owl", classes, func(class string) string {
			return word(templates[rng.IntN(2)], class)
		})
		goldentest.NoError(t, err)
		switch text {
		case "a photo of an owl":
			careless++
		case "a photo of a cat": // owl is the last class, so the first is next
			careless++
			wrong++
		case "this is an owl":
		default:
			t.Fatalf("caption %q", text)
		}
	}
	if share := float64(wrong) / float64(careless); share < 0.37 || share > 0.43 {
		t.Errorf("%.3f of the careless captions are wrong, want 0.4", share)
	}
	w.fits = func(s string) bool { return len(s) < 3 }
	if _, err := w.write(rng, "cat", classes, func(c string) string { return "this is a " + c }); err == nil ||
		!strings.Contains(err.Error(), "caption_tokens") {
		t.Errorf("captions that never fit give %v", err)
	}
}

// By hand: with captions of up to 8 tokens, positions 0 to 5 count as reached; the others become the mean of 2, 3, 4
// and 5.
func TestUnreachedPositions(t *testing.T) {
	p := tensor.New(10, 2)
	for i := range p.Data {
		p.Data[i] = float32(i * i)
	}
	first := append([]float32{}, p.Data[:12]...)
	meanOfUnreached(tensor.Map{"positional_embedding": p}, 8)
	for i, v := range first {
		if p.Data[i] != v {
			t.Errorf("element %d of a reached position changed", i)
		}
	}
	for r := 6; r < 10; r++ {
		for i, want := range []float32{(16 + 36 + 64 + 100) / 4.0, (25 + 49 + 81 + 121) / 4.0} {
			if got := p.Data[2*r+i]; got != want {
				t.Errorf("position %d, element %d is %g, want %g", r, i, got, want)
			}
		}
	}
}
