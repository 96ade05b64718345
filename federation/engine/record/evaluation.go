package record

import (
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// Evaluation is what a test gave with one kind of parameters, the server's (global) or each client's own (personal).
// Accuracies and F1 lie in [0,1].
type Evaluation struct {
	Accuracy float64 `json:"accuracy"`          // mean over clients
	Std      float64 `json:"accuracy_std"`      // over clients (population)
	Weighted float64 `json:"accuracy_weighted"` // right answers over test examples of all clients
	// macro-F1 over the classes of a client's test data, mean over clients
	F1      float64 `json:"f1"`
	Worst   float64 `json:"worst"`   // the lowest accuracy of a client
	Worst10 float64 `json:"worst10"` // mean over the lowest tenth of the clients, rounded up
	// accuracy where only the classes compete that a client trains on, mean over clients
	OwnClasses float64 `json:"own_classes"`
	// expected calibration error over the test examples of all clients
	ECE        *float64           `json:"ece,omitempty"`
	PerClient  []float64          `json:"per_client,omitempty"` // of those that answered, in order
	PerDomain  map[string]float64 `json:"per_domain,omitempty"` // mean over the clients of a domain
	DomainMean float64            `json:"domain_mean,omitempty"`
	DomainStd  float64            `json:"domain_std,omitempty"` // over domains (population)
}

// Evaluations are the two of one test; nil where the method does not have it.
type Evaluations struct {
	Global   *Evaluation `json:"global,omitempty"`
	Personal *Evaluation `json:"personal,omitempty"`
}

// Of is one of the two.
func (e Evaluations) Of(v method.View) *Evaluation {
	if v == method.PersonalView {
		return e.Personal
	}
	return e.Global
}

// SetResult is what all clients gave on one set of test data, their own or that of an evaluation set.
type SetResult struct {
	// the headline: that of the evaluation that eval.view names; nil where the method does not have it
	*Evaluation
	Global      *float64    `json:"global,omitempty"`   // accuracy
	Personal    *float64    `json:"personal,omitempty"` // accuracy
	Evaluations Evaluations `json:"evaluations,omitzero"`
	Examples    int         `json:"examples"` // that one client is tested with, the most of all
	// the clients that lists by client are about, where some did not answer
	Answered   []int `json:"answered,omitempty"`
	Unanswered []int `json:"unanswered,omitempty"` // the others

	Sizes     []int
	untrained int
}

// SummariseSet puts the replies to a test together. Those that lack an evaluation that the method has do not count as
// answers.
func SummariseSet(has Evaluable, view method.View, replies []message.Reply, asked []int,
	infos []method.ClientInfo) SetResult {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r message.Reply) bool {
		return has.Global && r.Scores.Global == nil || has.Personal && r.Scores.Personal == nil
	})
	message.SortReplies(replies)
	t := SetResult{}
	for _, r := range replies {
		t.Sizes, t.Examples = append(t.Sizes, r.Scores.Examples), max(t.Examples, r.Scores.Examples)
		if r.Scores.Untrained {
			t.untrained++
		}
	}
	if answered := message.ClientsOf(replies); len(answered) < len(asked) {
		t.Answered = answered
		t.Unanswered = slices.DeleteFunc(slices.Clone(asked), func(id int) bool {
			return slices.Contains(answered, id)
		})
	}
	if has.Global {
		t.Evaluations.Global = evaluate(method.GlobalView, replies, infos)
	}
	if has.Personal {
		t.Evaluations.Personal = evaluate(method.PersonalView, replies, infos)
	}
	t.Evaluation = t.Evaluations.Of(view)
	t.Global, t.Personal = t.Evaluations.Global.accuracy(), t.Evaluations.Personal.accuracy()
	return t
}

func (e *Evaluation) accuracy() *float64 {
	if e == nil {
		return nil
	}
	return &e.Accuracy
}

// evaluate is the evaluation of one kind, of replies sorted by client that all have it; nil without any.
func evaluate(kind method.View, replies []message.Reply, infos []method.ClientInfo) *Evaluation {
	if len(replies) == 0 {
		return nil
	}
	e := &Evaluation{}
	right, total := 0, 0
	var bins metrics.Calibration
	byDomain := map[string][]float64{}
	for _, a := range replies {
		h, n := a.Scores.Of(kind), a.Scores.Examples
		acc := float64(h.Correct) / float64(max(1, n))
		e.PerClient = append(e.PerClient, acc)
		e.F1 += h.F1 / float64(len(replies))
		e.OwnClasses += float64(h.CorrectOwn) / float64(max(1, n)) / float64(len(replies))
		bins = bins.Add(h.Calibration)
		right, total = right+h.Correct, total+n
		if d := infos[a.Client].Domain; d != "" {
			byDomain[d] = append(byDomain[d], acc)
		}
	}
	e.Accuracy, e.Std = metrics.MeanStd(e.PerClient)
	e.Worst, e.Worst10 = slices.Min(e.PerClient), metrics.WorstTenth(e.PerClient)
	if len(bins) > 0 {
		ece := bins.ECE()
		e.ECE = &ece
	}
	e.Weighted = float64(right) / float64(max(1, total))
	if len(byDomain) == 0 {
		return e
	}
	e.PerDomain = map[string]float64{}
	var means []float64
	for _, d := range slices.Sorted(maps.Keys(byDomain)) {
		e.PerDomain[d], _ = metrics.MeanStd(byDomain[d])
		means = append(means, e.PerDomain[d])
	}
	e.DomainMean, e.DomainStd = metrics.MeanStd(means)
	return e
}
