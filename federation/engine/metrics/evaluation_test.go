package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"promptfed/runtime/goldentest"
)

// An evaluation is read as it was written, both alone and among the keys of another object.
func TestEvaluationJSON(t *testing.T) {
	clients := []Client{{Domain: "Art", Examples: 9, Statistics: Compute(drawn(1, 9), true)},
		{Domain: "Photo", Examples: 4, Statistics: Compute(drawn(2, 4), true)}}
	e := Evaluate(clients)
	var got Evaluation
	b, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || !reflect.DeepEqual(&got, e) {
		t.Fatalf("%v\n%+v\n%+v", err, got, *e)
	}
	b, err = MarshalWith(struct {
		Round int `json:"round"`
	}{3}, e)
	goldentest.NoError(t, err)
	if back, err := ReadEvaluation(b); err != nil || !reflect.DeepEqual(back, e) {
		t.Fatalf("%s: %v, %+v", b, err, back)
	}
	for want, e := range map[string]*Evaluation{`{"a":1}`: nil, `{"a":1,"accuracy":0.5}`: {
		Values: map[string]float64{Accuracy: .5}},
		`{"a":1,"per_client":[0]}`: {PerClient: []float64{0}}, `{"a":1,"per_domain":{"x":1}}`: {
			PerDomain: map[string]float64{"x": 1}}} {
		if b, err := MarshalWith(map[string]int{"a": 1}, e); err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
	}
	if b, err := MarshalWith(math.NaN(), e); err == nil {
		t.Errorf("%s", b)
	}
	if _, err := json.Marshal(Evaluation{PerClient: []float64{math.NaN()}}); err == nil {
		t.Error("NaN is written")
	}
	for text, want := range map[string]string{`{"round":3}`: `null`, `{"accuracy":null}`: `null`, `{"":1}`: `null`,
		`{"accuracy":0.5,"other":1}`: `{"accuracy":0.5}`, `{"per_client":[1]}`: `{"per_client":[1]}`} {
		e, err := ReadEvaluation([]byte(text))
		if b, _ := json.Marshal(e); err != nil || string(b) != want {
			t.Errorf("%s: %v, %s, want %s", text, err, b, want)
		}
	}
	for _, text := range []string{`{"accuracy":"x"}`, `{"accuracy":1e999}`, `{"per_client":{}}`, `[]`} {
		if e, err := ReadEvaluation([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, e)
		}
	}
}

// The values of an evaluation may be beyond their bounds by the rounding of a sum.
func TestEvaluationBounds(t *testing.T) {
	low, high, slack := 0., 1., rounding
	for _, c := range []struct {
		e    *Evaluation
		says string
	}{
		{&Evaluation{}, "<nil>"},
		{&Evaluation{Values: map[string]float64{Accuracy: low - slack, Kappa: -1, Brier: 2}}, "<nil>"},
		{&Evaluation{Values: map[string]float64{Accuracy: high + slack}}, "<nil>"},
		{&Evaluation{Values: map[string]float64{Worst: 1.1}}, "has the worst 1.1, which is not between 0 and 1"},
		{&Evaluation{Values: map[string]float64{Kappa: -1.1}}, "has the kappa -1.1, which is not between -1 and 1"},
		{&Evaluation{PerClient: []float64{0, high + slack}, PerDomain: map[string]float64{"x": 1}}, "<nil>"},
		{&Evaluation{PerClient: []float64{0, -.1}}, "has the accuracy -0.1, which is not between 0 and 1"},
		{&Evaluation{PerDomain: map[string]float64{"x": 1.1}}, "has the accuracy 1.1, which is not between 0 and 1"},
	} {
		if err := c.e.Check(); fmt.Sprint(err) != c.says {
			t.Errorf("%+v: %v, want %s", c.e, err, c.says)
		}
	}
}
