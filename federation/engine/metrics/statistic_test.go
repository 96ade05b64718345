package metrics

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// drawn returns random test examples of classes 0 to 4.
func drawn(seed uint64, n int) Examples {
	rng := rand.New(rand.NewPCG(seed, 1))
	e := Examples{Scores: tensor.New(n, 5), Own: []int64{1, 3}}
	for i := range e.Scores.Data {
		e.Scores.Data[i] = float32(rng.NormFloat64())
	}
	for range n {
		e.Labels = append(e.Labels, rng.Int64N(5))
	}
	return e
}

// Statistics arrive as they were sent: lists as JSON, tables as tensors. Bounds are checked before reading. A JSON null
// changes nothing, as package json asks of every type.
func TestStatisticsTravel(t *testing.T) {
	for n := range 50 {
		s := Compute(drawn(uint64(n), n+1), true)
		var got Statistics
		if err := errors.Join(json.Unmarshal([]byte("null"), &got), json.Unmarshal(goldentest.JSON(t, s), &got),
			TableSpecs(5).Check(tensor.SpecsOf(s.Tables()))); err != nil {
			t.Fatal(err)
		}
		if err := got.AddTables(s.Tables()); err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%v: %v, want %v", err, got, s)
		}
		goldentest.NoError(t, got.Check(n+1, 5, true))
	}
}

// A client that holds the examples of several others has their pooled metrics: merging is exact.
func TestPoolingIsExact(t *testing.T) {
	all, clients := Examples{Own: []int64{1, 3}}, []Client{}
	var rows []float32
	for n := range 4 {
		e := drawn(uint64(n), 3*n+2)
		rows, all.Labels = append(rows, e.Scores.Data...), append(all.Labels, e.Labels...)
		clients = append(clients, Client{Examples: len(e.Labels), Statistics: Compute(e, true)})
	}
	all.Scores = tensor.Of(rows, len(all.Labels), 5)
	whole, parts := oneClient(all.Scores, all.Labels), Evaluate(clients)
	tested := 0
	for _, d := range definitions {
		if d.Value != nil && strings.HasPrefix(d.Merge, pooled) {
			want, _ := whole.Value(d.Name)
			near(t, "pooled", parts, d.Name, want, 1e-12)
			tested++
		}
	}
	if tested < 2 {
		t.Errorf("%d metrics are pooled", tested)
	}
}

// A metric is over the clients that sent its statistics. If no client did, the metric is absent, and not 0.
func TestWithheld(t *testing.T) {
	s := Compute(drawn(1, 9), true)
	other := Compute(drawn(2, 9), false)
	for _, d := range definitions {
		if d.Value == nil {
			continue
		}
		needs := slices.ContainsFunc(d.Statistics, func(x *Statistic) bool { return x.RevealsLabels })
		both := Evaluate([]Client{{Examples: 9, Statistics: s}, {Examples: 9, Statistics: other}})
		if want, ok := Evaluate([]Client{{Examples: 9, Statistics: s}}).Value(d.Name); ok && needs {
			near(t, "one of two sent it", both, d.Name, want, 1e-12)
		}
		if _, ok := Evaluate([]Client{{Examples: 9, Statistics: other}}).Value(d.Name); ok && needs {
			t.Errorf("%s has a value without its statistics", d.Name)
		}
	}
	if Evaluate(nil) != nil {
		t.Error("no client has an evaluation")
	}
	if _, ok := (*Evaluation)(nil).Value(Accuracy); ok {
		t.Error("no evaluation has an accuracy")
	}
}

// Headers with other statistics are refused before they are decoded.
func TestHostileHeaders(t *testing.T) {
	for text, says := range map[string]string{
		`{"correct":[1],"correct":[2]}`: "twice",
		`{"x":[1]}`:                     "unexpected statistic",
		`{"confusion":[0,0,1]}`:         "unexpected statistic", // a table comes as a tensor
		`{"correct":[1,2]}`:             "2 numbers",
		`{"correct":[]}`:                "0 numbers",
		`{"correct":"1"}`:               "correct",
		`{"correct":[1e999]}`:           "correct",
		`[1]`:                           "JSON object",
		`{"` + strings.Repeat("y", 9999) + `":[1]}`:        "unexpected statistic",
		`{"f1":[` + strings.Repeat("1,", 9999) + `1]}`:     "10000 numbers",
		`{"correct":null}`:                                 "0 numbers",
		`{"correct":[1],"own_correct":{"correct":[1,2]}} `: "own_correct",
	} {
		var s Statistics
		if err := json.Unmarshal([]byte(text), &s); err == nil || !strings.Contains(err.Error(), says) ||
			len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// Whatever a client sends, statistics that pass Check have metrics within their bounds.
func FuzzStatistics(f *testing.F) {
	b, _ := json.Marshal(Compute(drawn(3, 7), false))
	f.Add(b, 7, int64(0), int64(0), int64(7))
	f.Add([]byte(`{"correct":[9]}`), 7, int64(-1), int64(1<<40), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, header []byte, n int, class, predicted, count int64) {
		var s Statistics
		if json.Unmarshal(header, &s) != nil || s == nil {
			return
		}
		if err := s.AddTables(tensor.Map{"confusion": tensor.OfInts([]int64{class, predicted, count}, 1,
			3)}); err != nil {
			t.Fatal(err)
		}
		for _, labels := range []bool{true, false} {
			if n < 1 || n > 1<<32 || s.Check(n, 5, labels) != nil {
				continue
			}
			e := Evaluate([]Client{{Examples: n, Statistics: s}, {Examples: 7, Statistics: Compute(drawn(3, 7),
				labels)}})
			if err := e.Check(); err != nil {
				t.Fatalf("%s of %d: %v", header, n, err)
			}
		}
		delete(s, "confusion")
		if n >= 1 && n <= 1<<32 && s.Check(n, 5, false) == nil {
			e := Evaluate([]Client{{Examples: n, Statistics: s}})
			if err := e.Check(); err != nil {
				t.Fatalf("%s of %d: %v", header, n, err)
			}
			for _, v := range e.Values {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s of %d: %v", header, n, e.Values)
				}
			}
		}
	})
}
