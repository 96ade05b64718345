package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
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

// Tested is what all clients gave on one set of test data, their own or that of an exam.
type Tested struct {
	// the headline: that of the evaluation that eval.view names; nil where the method does not have it
	*Evaluation
	Global      *float64    `json:"global,omitempty"`   // accuracy
	Personal    *float64    `json:"personal,omitempty"` // accuracy
	Evaluations Evaluations `json:"evaluations,omitzero"`
	Examples    int         `json:"examples"` // that one client is tested with, the most of all
	// the clients that lists by client are about, where some did not answer
	Answered   []int `json:"answered,omitempty"`
	Unanswered []int `json:"unanswered,omitempty"` // the others

	sizes     []int
	untrained int
}

// tested puts the replies to a test together. Those that lack an evaluation that the method has do not count as
// answers.
func tested(has Evaluable, view method.View, replies []Reply, asked []int, peers []method.ClientInfo) Tested {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r Reply) bool {
		return has.Global && r.Scores.Global == nil || has.Personal && r.Scores.Personal == nil
	})
	sortReplies(replies)
	t := Tested{}
	for _, r := range replies {
		t.sizes, t.Examples = append(t.sizes, r.Scores.Examples), max(t.Examples, r.Scores.Examples)
		if r.Scores.Untrained {
			t.untrained++
		}
	}
	if answered := clients(replies); len(answered) < len(asked) {
		t.Answered = answered
		t.Unanswered = slices.DeleteFunc(slices.Clone(asked), func(id int) bool {
			return slices.Contains(answered,
				id)
		})
	}
	if has.Global {
		t.Evaluations.Global = evaluate(method.GlobalView, replies, peers)
	}
	if has.Personal {
		t.Evaluations.Personal = evaluate(method.PersonalView, replies, peers)
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
func evaluate(kind method.View, replies []Reply, peers []method.ClientInfo) *Evaluation {
	if len(replies) == 0 {
		return nil
	}
	e := &Evaluation{}
	right, total := 0, 0
	var bins Calibration
	byDomain := map[string][]float64{}
	for _, a := range replies {
		h, n := a.Scores.Of(kind), a.Scores.Examples
		acc := float64(h.Right) / float64(max(1, n))
		e.PerClient = append(e.PerClient, acc)
		e.F1 += h.F1 / float64(len(replies))
		e.OwnClasses += float64(h.Own) / float64(max(1, n)) / float64(len(replies))
		bins = bins.Add(h.Calibration)
		right, total = right+h.Right, total+n
		if d := peers[a.Client].Domain; d != "" {
			byDomain[d] = append(byDomain[d], acc)
		}
	}
	e.Accuracy, e.Std = MeanStd(e.PerClient)
	e.Worst, e.Worst10 = slices.Min(e.PerClient), worstTenth(e.PerClient)
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
		e.PerDomain[d], _ = MeanStd(byDomain[d])
		means = append(means, e.PerDomain[d])
	}
	e.DomainMean, e.DomainStd = MeanStd(means)
	return e
}

// MeanStd is the mean and the population standard deviation.
func MeanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}

// Evaluable says which evaluations a method has. Global needs class scores that depend on something that the server
// sends: shared parameters or extras. Personal needs scores that depend on something of the client's own: parameters,
// shared ones as it last left them too, what it kept, or its examples. Scores that depend on neither, as those of
// hand-written prompts, are the same for everybody and count as both.
type Evaluable struct {
	Global, Personal bool
	Reads            []string // what the scores depend on beside the image, of ReadsShared and so on, sorted
}

// What class scores may depend on.
const (
	ReadsShared   = "shared"   // shared parameters
	ReadsServer   = "server"   // extras that the server sends
	ReadsPrivate  = "private"  // private parameters, or what the client kept
	ReadsExamples = "examples" // the client's own training examples
)

// EvaluableOf looks at what the graph of a method's class scores reads, through host functions too. It is the same for
// all clients of an experiment.
func EvaluableOf(m method.Method, task method.Task) Evaluable {
	params := m.Params(task)
	s := method.NewScope(task, params)
	var inputs []string
	for _, n := range graph.Inputs(m.Logits(s)) {
		inputs = append(inputs, n.Name())
	}
	for _, h := range s.Hosts() {
		if slices.Contains(inputs, method.HostInput+"/"+h.Name) {
			inputs = append(inputs, h.Of...)
		}
	}
	reads := map[string]bool{}
	for _, in := range inputs {
		switch kind, name, _ := strings.Cut(in, "/"); {
		case kind == method.ParamInput || kind == method.ReceivedInput || kind == method.BeforeInput:
			for _, p := range params {
				if p.Name == name {
					reads[map[method.Owner]string{method.Shared: ReadsShared,
						method.Private: ReadsPrivate}[p.Owner]] = true
				}
			}
		case kind == method.BroadcastInput:
			reads[ReadsServer] = true
		case kind == method.StateInput:
			reads[ReadsPrivate] = true
		case in == method.MemoryImage:
			reads[ReadsExamples] = true
		}
	}
	e := Evaluable{Reads: slices.Sorted(maps.Keys(reads))}
	e.Global = reads[ReadsShared] || reads[ReadsServer] || len(reads) == 0
	e.Personal = reads[ReadsShared] || reads[ReadsPrivate] || reads[ReadsExamples] || len(reads) == 0
	return e
}

// MethodView is the value of Plan.View with which a headline is of the evaluation that the method's paper reports.
const MethodView = "method"

// Views are the values of Plan.View.
func Views() []string {
	return []string{MethodView, method.GlobalView.String(), method.PersonalView.String()}
}

// headline resolves Plan.View: global and personal are what they say, and all else is the method's own, or the only one
// where it has but one.
func (e Evaluable) headline(view string, m method.Method) method.View {
	switch {
	case view == method.GlobalView.String():
		return method.GlobalView
	case view == method.PersonalView.String() || !e.Global:
		return method.PersonalView
	case !e.Personal:
		return method.GlobalView
	}
	return m.View()
}

// maxTested is how many examples a client may say to be tested with: sums over any number of clients have exact float64
// and int values.
const maxTested = 1 << 32

// check finds why a client's scores cannot count.
func (s Scores) check() error {
	some := false
	if s.Examples > maxTested {
		return fmt.Errorf("the scores are of %d examples; at most %d are believed", s.Examples, maxTested)
	}
	for _, h := range []*Hits{s.Global, s.Personal} {
		if h == nil {
			continue
		}
		if some = true; s.Examples < 1 || h.Right < 0 || h.Right > s.Examples || h.Own < 0 || h.Own > s.Examples ||
			!(h.F1 >= 0 && h.F1 <= 1) {
			return fmt.Errorf("the scores %+v of %d examples are none", *h, s.Examples)
		}
		if len(h.Calibration) == 0 {
			continue
		}
		if err := h.Calibration.check(s.Examples, h.Right); err != nil {
			return err
		}
	}
	if !some {
		return fmt.Errorf("the scores are none: they have neither a global nor a personal part")
	}
	return nil
}
