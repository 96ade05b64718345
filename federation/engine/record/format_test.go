package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/runtime/goldentest"
)

// A record is written with its format and read again as it was. Other formats, and files without one, are refused.
func TestFormats(t *testing.T) {
	const keys = `"accuracy":0.5,"f1":0.25,"per_client":[0.5],"per_domain":{"Art":0.5},"domain_mean":0.5`
	const line = `{"format":2,"round":0,"tested":true,` + keys + `,"view":"global","evaluations":{"global":{` + keys +
		`}},"sets":{"dtd":{"accuracy":0.75,"global":0.75,"examples":4}}}`
	var r, again Record
	goldentest.NoError(t, json.Unmarshal([]byte(line), &r))
	want := map[string]float64{metrics.Accuracy: .5, metrics.F1: .25, metrics.DomainMean: .5}
	if !reflect.DeepEqual(r.Evaluation.Values, want) || !reflect.DeepEqual(r.Evaluation, r.Evaluations.Global) ||
		r.EvaluationSets["dtd"].Evaluation.Accuracy() != .75 {
		t.Errorf("%+v", r)
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || !reflect.DeepEqual(again, r) || !strings.HasPrefix(string(b), `{"format":2,"round":0,`) {
		t.Errorf("%v: %s", err, b)
	}
	for _, into := range []any{&r, &Summary{}} {
		for text, format := range map[string]string{`{"format":3,"round":0}`: "format 3", `{"round":0}`: "format 0"} {
			err := json.Unmarshal([]byte(text), into)
			goldentest.WantError(t, err, format+", this program reads format 2; use the release")
		}
	}
}
