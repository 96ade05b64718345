package record

import (
	"encoding/json"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
)

// ByView holds a result of each of the two evaluations, with the server's shared parameters and with each client's own;
// nil where the method does not have the evaluation.
type ByView[T any] struct {
	Global   *T `json:"global,omitempty"`
	Personal *T `json:"personal,omitempty"`
}

// Of returns one of the two; nil of nil.
func (b *ByView[T]) Of(v method.View) *T {
	switch {
	case b == nil:
		return nil
	case v == method.PersonalView:
		return b.Personal
	}
	return b.Global
}

// Evaluations are the two of one test.
type Evaluations = ByView[metrics.Evaluation]

// SetResult is the result of all clients on one set of test data, their own or an evaluation set.
type SetResult struct {
	// the headline: the evaluation that eval.view names, whose keys stand among the others; nil where the method does
	// not have it
	Evaluation  *metrics.Evaluation `json:"-"`
	Global      *float64            `json:"global,omitempty"`   // accuracy
	Personal    *float64            `json:"personal,omitempty"` // accuracy
	Evaluations Evaluations         `json:"evaluations,omitzero"`
	Examples    int                 `json:"examples"` // that one client is tested with, the most of all
	// the clients that lists by client are about, where some did not answer
	Answered   []int `json:"answered,omitempty"`
	Unanswered []int `json:"unanswered,omitempty"` // the others

	Sizes     []int `json:"-"` // test examples of each client that answered
	untrained int
}

// MarshalJSON writes the headline's keys behind the others.
func (t SetResult) MarshalJSON() ([]byte, error) {
	type plain SetResult
	return metrics.MarshalWith(plain(t), t.Evaluation)
}

func (t *SetResult) UnmarshalJSON(b []byte) (err error) {
	type plain SetResult
	if err = json.Unmarshal(b, (*plain)(t)); err == nil {
		t.Evaluation, err = metrics.ReadEvaluation(b)
	}
	return err
}

// SummariseSet merges the replies to a test. A reply that lacks an evaluation of the method does not count as an
// answer.
func SummariseSet(has Evaluable, view method.View, replies []message.Reply, asked []int,
	infos []method.ClientInfo) SetResult {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r message.Reply) bool {
		return has.Global && r.Scores.Global == nil || has.Personal && r.Scores.Personal == nil
	})
	message.SortReplies(replies)
	setResult := SetResult{}
	for _, r := range replies {
		setResult.Sizes, setResult.Examples = append(setResult.Sizes, r.Scores.Examples), max(setResult.Examples,
			r.Scores.Examples)
		if r.Scores.Untrained {
			setResult.untrained++
		}
	}

	if answered := message.ClientsOf(replies); len(answered) < len(asked) {
		setResult.Answered = answered
		setResult.Unanswered = slices.DeleteFunc(slices.Clone(asked), func(id int) bool {
			return slices.Contains(answered, id)
		})
	}

	if has.Global {
		setResult.Evaluations.Global = evaluate(method.GlobalView, replies, infos)
	}

	if has.Personal {
		setResult.Evaluations.Personal = evaluate(method.PersonalView, replies, infos)
	}

	setResult.Evaluation = setResult.Evaluations.Of(view)
	setResult.Global, setResult.Personal = accuracy(setResult.Evaluations.Global),
		accuracy(setResult.Evaluations.Personal)
	return setResult
}

// accuracy returns the accuracy of an evaluation, which may be nil.
func accuracy(e *metrics.Evaluation) *float64 {
	if v, ok := e.Value(metrics.Accuracy); ok {
		return &v
	}
	return nil
}

// evaluate merges one evaluation of replies that all have it, sorted by client; nil without any.
func evaluate(kind method.View, replies []message.Reply, infos []method.ClientInfo) *metrics.Evaluation {
	return metrics.Evaluate(convert.Slice(replies, func(r message.Reply) metrics.Client {
		return metrics.Client{Domain: infos[r.Client].Domain, Examples: r.Scores.Examples,
			Statistics: r.Scores.Of(kind)}
	}))
}

// BaseToNew is base-to-new generalisation (metrics.Generalisation).
type BaseToNew = ByView[metrics.Generalisation]

// Generalise computes base-to-new generalisation from the round's evaluations; nil where it lacks the sets base and
// new.
func (r *Record) Generalise() *BaseToNew {
	base, some := r.EvaluationSets[metrics.BaseSet]
	other, both := r.EvaluationSets[metrics.NewSet]
	if !some || !both {
		return nil
	}

	own, b, n := r.Evaluations, base.Evaluations, other.Evaluations
	return &BaseToNew{metrics.Generalise(own.Global, b.Global, n.Global),
		metrics.Generalise(own.Personal, b.Personal, n.Personal)}
}

// Confusion is the content of ConfusionFile: how often each class was predicted as each class, over the test examples
// of all clients, in the round that is the run's result.
type Confusion struct {
	Round    int             `json:"round"`
	Classes  []string        `json:"classes"`
	Clients  int             `json:"clients"` // that sent their counts
	Global   *metrics.Matrix `json:"global,omitempty"`
	Personal *metrics.Matrix `json:"personal,omitempty"`
}

// ConfusionFile is the file of a run folder that holds Confusion. A run has it where clients send their counts.
const ConfusionFile = "confusion.json"

// ConfusionOf adds the confusion matrices of clients; nil where no client sent one.
func ConfusionOf(round, classes int, replies []message.Reply) *Confusion {
	out := &Confusion{Round: round}
	var global, personal []metrics.Statistics
	for _, r := range replies {
		if r.Scores.Global.HasConfusion() || r.Scores.Personal.HasConfusion() {
			out.Clients++
		}
		global, personal = append(global, r.Scores.Global), append(personal, r.Scores.Personal)
	}

	if out.Clients == 0 {
		return nil
	}

	out.Global, out.Personal = metrics.Confusion(global, classes), metrics.Confusion(personal, classes)
	return out
}

// Attack is the effect of a simulated attack. Means are over honest clients, with the server's parameters and with each
// client's own, where the method has these evaluations.
type Attack struct {
	Clients  []int    `json:"clients"` // attackers that trained in the round; in a summary all of them
	Global   *float64 `json:"honest_global,omitempty"`
	Personal *float64 `json:"honest_personal,omitempty"`
	// where evaluation sets were tested: the share of images with the trigger that are taken for the target
	SuccessGlobal   *float64 `json:"success_global,omitempty"`
	SuccessPersonal *float64 `json:"success_personal,omitempty"`
}

// AttackedBy fills in the effect of attackers on a round, after its tests.
func (r *Record) AttackedBy(attackers []int) {
	if len(attackers) == 0 {
		return
	}

	out := &Attack{Clients: []int{}}
	for _, id := range attackers {
		if slices.Contains(r.Clients, id) {
			out.Clients = append(out.Clients, id)
		}
	}

	out.Global, out.Personal = honest(r.Evaluations, r.Answered, attackers)
	if x, ok := r.EvaluationSets[metrics.TriggeredSet]; ok {
		out.SuccessGlobal, out.SuccessPersonal = honest(x.Evaluations, x.Answered, attackers)
	}

	r.Attack = out
}

// honest returns the mean accuracies of a test over clients that do not attack.
func honest(evaluations Evaluations, answered, attackers []int) (global, personal *float64) {
	accuracyOf := func(e *metrics.Evaluation) *float64 {
		if e == nil {
			return nil
		}

		var accuracy []float64
		for i, v := range e.PerClient {
			client := i
			if answered != nil {
				client = answered[i]
			}
			if !slices.Contains(attackers, client) {
				accuracy = append(accuracy, v)
			}
		}

		if len(accuracy) == 0 {
			return nil
		}

		return new(metrics.Mean(accuracy))
	}

	return accuracyOf(evaluations.Global), accuracyOf(evaluations.Personal)
}
