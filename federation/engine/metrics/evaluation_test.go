package metrics

import (
	"encoding/json"
	"reflect"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ReadEvaluation(b); err != nil || !reflect.DeepEqual(back, e) {
		t.Fatalf("%s: %v, %+v", b, err, back)
	}
	for text, want := range map[string]string{`{"round":3}`: `null`, `{"accuracy":null}`: `null`,
		`{"accuracy":0.5,"other":1}`: `{"accuracy":0.5}`, `{"per_client":[1]}`: `{"per_client":[1]}`,
		`{"per_domain":{"Art":1}}`: `{"domain_mean":0,"domain_std":0,"per_domain":{"Art":1}}`} { // of format 1
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
