package engine_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// A summary counts by hand what records say of clients; records and summaries of runs where all were taken at their
// word have no key of it.
func TestSummaryOfLimited(t *testing.T) {
	s := record.Summarise([]record.Record{
		{Limited: message.Limited{Refused: []message.Refusal{{Client: 4, Reason: "first"},
			{Client: 4, Reason: "second"}},
			Cut: []message.Cut{{Client: 1, Claimed: 900, Counted: 40}}}},
		{},
		{Limited: message.Limited{Refused: []message.Refusal{{Client: 1, Reason: "x"}},
			Cut: []message.Cut{{Client: 1, Claimed: 900, Counted: 60}}}},
	}, method.GlobalView)
	want := "[client 1: 1 of its replies were refused (x); claims 900 examples and was weighted as " +
		"if it had 60, in 2 rounds " +
		"client 4: 2 of its replies were refused (first)]"
	if got := fmt.Sprint(s.Limited); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	b, err := json.Marshal([]any{record.Record{}, record.Summarise([]record.Record{{}}, method.GlobalView)})
	for _, key := range []string{`"refused"`, `"cut"`, `"limited"`, `"Limited"`} {
		if err != nil || strings.Contains(string(b), key) {
			t.Errorf("%v: %s in %s", err, key, b)
		}
	}
}

// Extras are exactly those that are declared.
func TestCheckExtras(t *testing.T) {
	declared := []method.Extra{{Name: "mean", Shape: []int{-6, 2}}, {Name: "n", Shape: []int{2, 1}, Counts: true}}
	counts := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v), 1) }
	for say, got := range map[string]tensor.Map{
		"":                     {"mean": tensor.New(5, 2), "n": counts(3, 4)},
		"mean is missing":      {"n": counts(3, 4)},
		"mean is float32[5 3]": {"mean": tensor.New(5, 3), "n": counts(3, 4)},
		"mean is float32[7 2]": {"mean": tensor.New(7, 2), "n": counts(3, 4)},
		"mean is float32[2]":   {"mean": tensor.New(2), "n": counts(3, 4)},
		"mean is int64[1 2]":   {"mean": tensor.OfInts([]int64{1, 2}, 1, 2), "n": counts(3, 4)},
		"counts 8 examples":    {"mean": tensor.New(5, 2), "n": counts(4, 4)},
		"counts -1 examples":   {"mean": tensor.New(5, 2), "n": counts(-1, 4)},
		"counts 0.5":           {"mean": tensor.New(5, 2), "n": counts(0.5, 4)},
		"counts NaN":           {"mean": tensor.New(5, 2), "n": counts(float32(math.NaN()), 4)},
		"counts +Inf":          {"mean": tensor.New(5, 2), "n": counts(float32(math.Inf(1)), 4)},
		`the tensor "more"`:    {"mean": tensor.New(5, 2), "n": counts(3, 4), "more": tensor.New(1)},
	} {
		err := message.CheckExtras(declared, got, 7)
		if (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", say, err)
		}
	}
}
