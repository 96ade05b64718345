package message

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
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
		{"cross entropy local", 1.0 / 3, Norms{math.Pi, map[string]float64{"ctx": 1e-300}}},
		{"not-true distillation", -2, Norms{0, map[string]float64{}}},
		{Correction, 0, Norms{7, map[string]float64{"ctx": 7}}}}}
}

// Measurements of clients travel exactly.
func TestTermsTravelExactly(t *testing.T) {
	text := goldentest.JSON(t, measured())
	var back *LossTerms
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, measured()) {
		t.Errorf("%+v, %v", back, err)
	}
}

// Measurements are accepted of the terms of the loss only, in their order, and on parameters that the client has.
func TestTermsThatAreNone(t *testing.T) {
	names, task := []string{"cross entropy local", "not-true distillation"}, method.ClientSpec{Width: 4}
	for _, c := range []struct {
		change func(o *Instruction, t *LossTerms)
		says   string
	}{
		{func(*Instruction, *LossTerms) {}, ""},
		{func(_ *Instruction, t *LossTerms) { t.Terms = t.Terms[:1] }, ""},
		{func(o *Instruction, _ *LossTerms) { o.Kind = Compute }, "not asked for"},
		{func(o *Instruction, _ *LossTerms) { o.Guarded = tensor.Specs{} }, "not asked for"},
		{func(_ *Instruction, t *LossTerms) { t.Terms = append(t.Terms, t.Terms...) }, "not asked for"},
		{func(_ *Instruction, t *LossTerms) { t.Terms = t.Terms[1:] }, "is not the loss term"},
		{func(_ *Instruction, t *LossTerms) { t.Terms[0].On["other"] = 1 }, `"other", which is no parameter`},
		{func(_ *Instruction, t *LossTerms) { t.CrossEntropy.On["other"] = 1 }, `"other", which is no parameter`},
	} {
		o, terms := Instruction{Kind: Train}, measured()
		c.change(&o, terms)
		err := o.CheckTerms(terms, names, ctxMethod{}, task)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	goldentest.NoError(t, (Instruction{Kind: Test}).CheckTerms(nil, nil, nil, task))
}

// A reply may have 64 terms with values and lengths up to 1e12, whoever sends it.
func TestMostTerms(t *testing.T) {
	shared := tensor.Map{"ctx": tensor.New(2)}
	good := func() Reply {
		terms := &LossTerms{}
		for range 64 {
			terms.Terms = append(terms.Terms, TermStats{Value: -1e12, Norms: Norms{All: 1e12,
				On: map[string]float64{"ctx": 0}}})
		}
		return Reply{Upload: method.Upload{N: 1, Shared: shared}, Stats: Stats{Terms: terms}}
	}
	o := Instruction{Kind: Train, Shared: shared}
	for what, spoil := range map[string]func(t *LossTerms){
		"":                   func(*LossTerms) {},
		"65 terms":           func(t *LossTerms) { t.Terms = append(t.Terms, TermStats{}) },
		"a large value":      func(t *LossTerms) { t.Terms[63].Value = 1.1e12 },
		"no number":          func(t *LossTerms) { t.Terms[0].Value = math.NaN() },
		"a large length":     func(t *LossTerms) { t.Terms[63].All = 1.1e12 },
		"a negative length":  func(t *LossTerms) { t.CrossEntropy.All = -1 },
		"an infinite length": func(t *LossTerms) { t.CrossEntropy.On = map[string]float64{"ctx": math.Inf(1)} },
		"no length":          func(t *LossTerms) { t.Terms[5].On["ctx"] = math.NaN() },
	} {
		r := good()
		spoil(r.Stats.Terms)
		if err := o.Check(r); (err == nil) != (what == "") || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var none *LossTerms
	goldentest.NoError(t, none.Within(0))
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
