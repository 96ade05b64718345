package message

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// The norm of a sum is that of the added gradients, (3,4) + (0,-4) = (3,0), and not the sum of norms 5 + 4. A parameter
// that only one gradient reaches counts as it is: all together the norm is the root of 9 + 16.
func TestNormsOfSums(t *testing.T) {
	a := tensor.Map{"p": tensor.Of([]float32{3, 4}, 2)}
	b := tensor.Map{"p": tensor.Of([]float32{0, -4}, 2), "q": tensor.Of([]float32{4}, 1)}
	if got, want := NormsOf(a, b), (Norms{All: 5, On: map[string]float64{"p": 3, "q": 4}}); !reflect.DeepEqual(got,
		want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := NormsOf(); got.All != 0 || len(got.On) != 0 {
		t.Errorf("the norm of nothing is %+v", got)
	}
}

func measured() *LossTerms {
	return &LossTerms{CrossEntropy: Norms{0.1, map[string]float64{"ctx": 0.1}}, Terms: []TermStats{
		{"cross entropy local", 1.0 / 3, Norms{math.Pi, map[string]float64{"ctx": 1e-300, "text/shared": 3}}},
		{"not-true distillation", -2, Norms{0, map[string]float64{}}},
		{Correction, 0, Norms{7, map[string]float64{"ctx": 7}}}}}
}

// Measurements of clients travel exactly, and their names are valid in messages.
func TestTermsTravelExactly(t *testing.T) {
	r := Reply{Client: 1, Stats: Stats{Terms: measured()},
		Upload: method.Upload{Shared: tensor.Map{"ctx": tensor.New(2)}}}
	m, err := RoundTrip(r.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	back, err := Instruction{}.WithReplyTensors(Reply{Client: 1}, m)
	if err != nil || !reflect.DeepEqual(back.Stats.Terms, measured()) || len(back.Upload.Shared) != 1 ||
		len(back.Upload.Extra) != 0 {
		t.Errorf("%+v, %v", back.Stats.Terms, err)
	}
	for name := range m {
		if strings.ContainsAny(name, " ") {
			t.Errorf("a tensor is called %q", name)
		}
	}
	if n := (Reply{Upload: r.Upload}).UploadSize(); r.UploadSize() != n {
		t.Errorf("the upload has %d bytes with measurements and %d without", r.UploadSize(), n)
	}
}

func TestTermsThatAreNone(t *testing.T) {
	one, two := bitsOf(1), bitsOf(1, 2)
	for what, m := range map[string]tensor.Map{
		"float32": {"001/pull": tensor.New(2)}, "short": {"001/pull": one}, "long": {"001/pull/ctx": two},
		"gap":       {"002/pull": two},
		"no number": {"pull": two}, "negative": {"001/pull": bitsOf(-1, 2)},
		"NaN":     {"001/pull": bitsOf(1, math.NaN())},
		"no term": {"001/pull/ctx": one}, "many": {"999/pull": two}, "value of all": {"000/fit": two},
		"below": {"-01/pull": two}, "large": {"001/pull": bitsOf(1, 1.1e12)},
		"negative on one": {"000/fit/ctx": bitsOf(-1)},
		"infinite":        {"001/pull": bitsOf(math.Inf(1), 0)},
	} {
		if got, err := lossTermsOf(m); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// By hand: half of the second client's measurements are added to the first client's, term by term.
func TestTermsAdd(t *testing.T) {
	got := LossTerms{CrossEntropy: Norms{All: 1}, Terms: []TermStats{{"pull", 3,
		Norms{All: 2, On: map[string]float64{"a": 2}}}}}
	got.Add(LossTerms{CrossEntropy: Norms{4, map[string]float64{"a": 6}}, Terms: []TermStats{
		{"push", 8, Norms{All: 10}}, {"pull", 2, Norms{All: 4, On: map[string]float64{"a": 4, "b": 1}}}}}, .5)
	want := LossTerms{CrossEntropy: Norms{3, map[string]float64{"a": 3}}, Terms: []TermStats{
		{"pull", 4, Norms{4, map[string]float64{"a": 4, "b": .5}}}, {"push", 4, Norms{5, map[string]float64{}}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A reply may have 64 terms with values and lengths up to 1e12.
func TestMostTerms(t *testing.T) {
	m := tensor.Map{"000/fit": bitsOf(0)}
	for k := 1; k <= maxTerms; k++ {
		m[termAt(k, "a term")] = bitsOf(maxTerm, -maxTerm)
	}
	got, err := lossTermsOf(m)
	if err != nil || len(got.Terms) != maxTerms || got.Terms[63].Value != -maxTerm || got.Terms[0].Name != "a term" {
		t.Error(got, err)
	}
	m[termAt(maxTerms+1, "a term")] = bitsOf(0, 0)
	if _, err := lossTermsOf(m); err == nil ||
		err.Error() != `"065/a_term" is not a valid measurement of a loss term: [0 0]` {
		t.Error(err)
	}
}
