package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
)

// Format 1 is read with the present names, and metrics that it lacks are absent. Later formats are refused.
func TestFormats(t *testing.T) {
	const keys = `"accuracy":0.5,"f1":0.25,"per_client":[0.5],"per_domain":{"Art":0.5},"domain_mean":0.5`
	const old = `{"round":0,"tested":true,` + keys + `,"view":"global","evaluations":{"global":{` + keys + `}},` +
		`"exams":{"dtd":{"accuracy":0.75,"global":0.75,"examples":4}}}`
	var r, again Record
	if err := json.Unmarshal([]byte(old), &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{metrics.Accuracy: .5, metrics.F1: .25, metrics.DomainMean: .5, metrics.DomainStd: 0}
	if !reflect.DeepEqual(r.Evaluation.Values, want) || !reflect.DeepEqual(r.Evaluation, r.Evaluations.Global) ||
		r.EvaluationSets["dtd"].Evaluation.Accuracy() != .75 {
		t.Errorf("%+v", r)
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || !reflect.DeepEqual(again, r) || !strings.HasPrefix(string(b), `{"format":2,"round":0,`) ||
		!strings.Contains(string(b), `"sets":{"dtd":{`) || strings.Contains(string(b), "exams") {
		t.Errorf("%v: %s", err, b)
	}
	var s Summary
	if err := json.Unmarshal([]byte(`{"name":"x","last":0.5,"f1":0.25,"unanswered":[{"round":1,"exam":"dtd",`+
		`"clients":[2]}],"exams":{"dtd":{"examples":4}}}`), &s); err != nil || s.Last != .5 ||
		s.Evaluation.Values[metrics.F1] != .25 || s.Unanswered[0].Set != "dtd" ||
		s.EvaluationSets["dtd"].Examples != 4 {
		t.Errorf("%v: %+v", err, s)
	}
	for _, into := range []any{&r, &s} {
		err := json.Unmarshal([]byte(`{"format":3,"round":0}`), into)
		if err == nil || !strings.Contains(err.Error(), "format 3, this program reads formats up to 2; use a later") {
			t.Error(err)
		}
	}
}
