package engine

import (
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// TestHits: four examples of classes 0, 0, 2, 2, said to be 0, 1, 2, 0 (a tie goes to the first). By hand: class 0 has TP 1,
// FP 1, FN 1, so F1 1/2; class 2 has TP 1, FP 0, FN 1, so 2/3; class 1 does not occur and does not count.
func TestHits(t *testing.T) {
	scores := tensor.Of([]float32{
		3, 1, 2,
		0, 5, 1,
		-2, -3, -1,
		4, 0, 4}, 4, 3)
	h := hits(scores, []int64{0, 0, 2, 2})
	if h.Right != 2 || math.Abs(h.F1-(0.5+2.0/3)/2) > 1e-15 {
		t.Errorf("%+v", h)
	}
	if h := hits(tensor.New(0, 3), nil); h != (Hits{}) {
		t.Errorf("of nothing: %+v", h)
	}
}

// TestScore: three clients with 1 of 2, 3 of 4 and 4 of 4 right as they are tested (their own parameters), and 0, 1 and 2 with
// the server's; domains east (0.5, 1) and west (0.75) have means 0.75 and 0.75.
func TestScore(t *testing.T) {
	var replies []Reply
	for i, s := range []Scores{
		{Examples: 2, Global: Hits{0, 0.1}, Personal: Hits{1, 0.3}},
		{Examples: 4, Global: Hits{1, 0.2}, Personal: Hits{3, 0.6}},
		{Examples: 4, Global: Hits{2, 0.3}, Personal: Hits{4, 0.9}}} {
		replies = append(replies, Reply{Client: i, Scores: s})
	}
	r := Record{}
	r.score(replies, method.Own, []method.Peer{{Domain: "east"}, {Domain: "west"}, {Domain: "east"}})
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	near("accuracy", r.Accuracy, 0.75)
	near("std", r.Std, math.Sqrt(0.125/3))
	near("weighted", r.Weighted, 0.8)
	near("global", r.Global, 0.25)
	near("personal", r.Personal, 0.75)
	near("worst", r.Worst, 0.5)
	near("f1", r.F1, 0.6)
	near("domain mean", r.DomainMean, 0.75)
	near("domain std", r.DomainStd, 0)
	near("east", r.PerDomain["east"], 0.75)
	if r.Answered != nil {
		t.Errorf("all answered, and the record names %v", r.Answered)
	}
	some := Record{}
	some.score(replies[1:], method.Own, []method.Peer{{}, {}, {}})
	if len(some.PerClient) != 2 || len(some.Answered) != 2 || some.Answered[0] != 1 || some.Answered[1] != 2 {
		t.Errorf("clients 1 and 2 answered: %v of %v", some.PerClient, some.Answered)
	}
	g := grade(replies, method.Merged)
	near("grade", g.Accuracy, 0.25)
	near("grade f1", g.F1, 0.2)
	if g.Examples != 4 {
		t.Errorf("%d examples", g.Examples)
	}
}
