package record

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// Validation is the result on validation data in one round; each mean is over the clients that have any.
type Validation struct {
	Evaluations
	Clients  []int `json:"clients,omitempty"` // that lists by client are about; without it all, in order
	Examples []int `json:"examples"`          // of each client
}

// Of returns the evaluation of a view; nil without validation data.
func (v *Validation) Of(view method.View) *metrics.Evaluation {
	if v == nil {
		return nil
	}
	return v.Evaluations.Of(view)
}

// AtBestVal is the round with the best validation accuracy, of equal ones the first, and the accuracy on test data
// there.
type AtBestVal struct {
	Round      int      `json:"round"`
	Validation float64  `json:"validation"`         // accuracy of the headline's evaluation
	Accuracy   float64  `json:"accuracy"`           // likewise, on test data
	Global     *float64 `json:"global,omitempty"`   // on test data, as far as the method has it
	Personal   *float64 `json:"personal,omitempty"` // likewise
}

// Choose fills in which round is the result, and why the run ended.
func (s *Summary) Choose(records []Record, view method.View, how TestPlan) {
	s.Select, s.Stopped = "last", how.Stop(records, view)
	best := BestVal(records, view)
	if best < 0 {
		return
	}

	record := records[best]
	s.AtBestVal = &AtBestVal{Round: record.Round, Validation: record.Validation.Of(view).Accuracy(),
		Global: record.Global, Personal: record.Personal}
	e := record.Evaluations.Of(view)
	if e != nil {
		s.AtBestVal.Accuracy = e.Accuracy()
	}

	if !how.BestVal {
		return
	}

	s.Select = "best-val"
	s.of(record, view)
}

// BestVal returns the index of the record with the best validation accuracy, of equal ones the first; -1 without any.
func BestVal(records []Record, view method.View) int { return bestBy(records, view, higher) }

// bestBy returns the index of the record that is better than the best before it; -1 without any validation.
func bestBy(records []Record, view method.View, better func(v, best *Validation, view method.View) bool) int {
	best := -1
	for i, r := range records {
		if r.Validation.Of(view) != nil && (best < 0 || better(r.Validation, records[best].Validation, view)) {
			best = i
		}
	}
	return best
}

// higher reports whether the accuracy of v is higher than that of best.
func higher(v, best *Validation, view method.View) bool {
	return metrics.Above(v.Of(view).Accuracy(), best.Of(view).Accuracy())
}

// gained reports whether clients gained from best to v by their own words: whether the mean of their gains is positive
// without the lowest and the highest fifth of them, each rounded up. It lies between the gains of honest clients, if
// at most a fifth of the clients lie. Only clients of both tests count. Where these are less than three, or accuracies
// of single clients are a secret, gained is higher.
func gained(v, best *Validation, view method.View) bool {
	before := best.perClient(view)
	var gains []float64
	for client, accuracy := range v.perClient(view) {
		if old, ok := before[client]; ok {
			gains = append(gains, accuracy-old)
		}
	}

	if len(gains) < 3 {
		return higher(v, best, view)
	}

	slices.Sort(gains)
	drop := (len(gains) + 4) / 5
	return metrics.Above(metrics.Mean(gains[drop:len(gains)-drop]), 0)
}

// perClient returns the accuracies by client.
func (v *Validation) perClient(view method.View) map[int]float64 {
	out := map[int]float64{}
	for i, accuracy := range v.Of(view).PerClient {
		if v.Clients != nil {
			i = v.Clients[i]
		}
		out[i] = accuracy
	}

	return out
}

// ErrNoValidation states how to get validation data.
var ErrNoValidation = errors.New("no client has validation data, which eval.select: best-val and train.patience " +
	"need; keep a share of the training data with data.val_share: 0.2, set data.split: pooled (60/20/20 inside each " +
	"client), or with synthetic images data.generator.val")

// TestPlan lists what is tested beside the clients' test data, and how the round is chosen that is the result.
type TestPlan struct {
	Validate  bool  // test on the clients' validation data in every tested round
	BestVal   bool  // the result is the round with the best validation accuracy, not the last
	Patience  int   // tested rounds without a better validation accuracy after which the run stops; 0 for none
	SetsEvery int   // rounds between tests on the evaluation sets; 0 for the result only
	NewSteps  []int // steps that a client that never trains takes before it is tested, a test for each
	Confusion bool  // count which class was taken for which, of the result
	ZeroShot  bool  // compare hand-written prompts with chance before round 0
	Claimed   bool  // clients report their accuracies from other machines, and Patience bounds what one of them decides
}

// Stop returns the reason why the run ends after these rounds, before all are trained; empty where it goes on. It
// counts rounds from 1, as the terminal does.
func (e TestPlan) Stop(records []Record, view method.View) string {
	better := higher
	if e.Claimed {
		better = gained
	}

	best := bestBy(records, view, better)
	if e.Patience == 0 || best < 0 {
		return ""
	}

	since := 0
	for _, r := range records[best+1:] {
		if r.Validation.Of(view) != nil {
			since++
		}
	}

	if since < e.Patience {
		return ""
	}

	return fmt.Sprintf("train.patience: no better validation accuracy in the %d tested rounds after round %d", since,
		records[best].Round+1)
}

// TestsSets reports whether every run tests the evaluation sets in this round, whether or not it is the result.
func (e TestPlan) TestsSets(round int) bool { return e.SetsEvery > 0 && (round+1)%e.SetsEvery == 0 }

// Settle removes from the last of these records what only a result has, unless a run of so many rounds has it too.
func (e TestPlan) Settle(records []Record, view method.View, rounds int) {
	if e.Result(records, view, rounds) {
		return
	}

	last := &records[len(records)-1]
	last.NewClients = nil
	for _, evaluation := range last.OwnEvaluations() {
		evaluation.OmitLabels()
	}

	if e.TestsSets(last.Round) {
		return
	}

	last.EvaluationSets, last.BaseToNew = nil, nil
	if last.Attack != nil {
		last.Attack.SuccessGlobal, last.Attack.SuccessPersonal = nil, nil
	}
}

// Result reports whether the last of these rounds is the run's result so far. Everything that belongs to a result is
// then measured.
func (e TestPlan) Result(records []Record, view method.View, rounds int) bool {
	if e.BestVal {
		return BestVal(records, view) == len(records)-1
	}
	return len(records) == rounds || e.Stop(records, view) != ""
}
