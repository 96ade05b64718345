package results

import (
	"slices"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

// Metric is a number that a run gives: a quantity of its rounds, and which of the rounds count.
type Metric struct {
	Name     string // as it is asked for: last10, domain:Art, f1@last5
	quantity string // of metrics.Quantities
	arg      string // of a quantity that has one
	window   string
	view     string // GlobalView or PersonalView; empty for the headline of each run
}

// headline reads a number of the evaluation that a round's headline is of.
func headline(of func(e *record.Evaluation) float64) func(Round, string) (float64, bool) {
	return func(r Round, _ string) (float64, bool) { return evaluated(r.Evaluation, of) }
}

func evaluated(e *record.Evaluation, of func(e *record.Evaluation) float64) (float64, bool) {
	if e == nil {
		return 0, false
	}
	return of(e), true
}

func accuracy(e *record.Evaluation) float64 { return e.Accuracy }

func always(of func(r Round) float64) func(Round, string) (float64, bool) {
	return func(r Round, _ string) (float64, bool) { return of(r), true }
}

// readers give the value of each of metrics.Quantities in a round; false where the round does not have it.
var readers = together(map[string]reader{
	metrics.Accuracy: headline(accuracy),
	metrics.Weighted: headline(func(e *record.Evaluation) float64 { return e.Weighted }),
	metrics.F1:       headline(func(e *record.Evaluation) float64 { return e.F1 }),
	metrics.Worst:    headline(func(e *record.Evaluation) float64 { return e.Worst }),
	metrics.Domain: func(r Round, arg string) (float64, bool) {
		if r.Evaluation == nil {
			return 0, false
		}
		return lookUp(r.PerDomain, arg)
	},
	metrics.ClientStd:  headline(func(e *record.Evaluation) float64 { return e.Std }),
	metrics.DomainMean: overDomains(func(e *record.Evaluation) float64 { return e.DomainMean }),
	metrics.DomainStd:  overDomains(func(e *record.Evaluation) float64 { return e.DomainStd }),
	metrics.Set: func(r Round, arg string) (float64, bool) {
		x, _ := lookUp(r.EvaluationSets, arg)
		return evaluated(x.Evaluation, accuracy)
	},
	metrics.SetMean: func(r Round, _ string) (float64, bool) {
		var all []float64
		for _, name := range sortedKeys(r.EvaluationSets) {
			if slices.Contains(record.OwnSets, name) {
				continue // made of the same data set
			}
			v, ok := evaluated(r.EvaluationSets[name].Evaluation, accuracy)
			if !ok {
				return 0, false
			}
			all = append(all, v)
		}
		mean, _ := metrics.MeanStd(all)
		return mean, len(all) > 0
	},
	metrics.Note:    func(r Round, arg string) (float64, bool) { return lookUp(r.Notes, arg) },
	metrics.Loss:    always(func(r Round) float64 { return r.Loss }),
	metrics.Bytes:   always(func(r Round) float64 { return float64(r.BytesUp) + float64(r.BytesDown) }),
	metrics.Seconds: always(func(r Round) float64 { return r.Seconds }),
}, evaluations, sent)

// reader gives the value of a quantity, with its argument, in a round.
type reader = func(r Round, arg string) (float64, bool)

func overDomains(of func(e *record.Evaluation) float64) func(Round, string) (float64, bool) {
	return func(r Round, _ string) (float64, bool) {
		if r.Evaluation == nil || len(r.PerDomain) == 0 {
			return 0, false
		}
		return of(r.Evaluation), true
	}
}

// lookUp finds a name, or the only one that differs from it in nothing but case.
func lookUp[V any](m map[string]V, name string) (V, bool) {
	if v, ok := m[name]; ok {
		return v, true
	}
	for _, k := range sortedKeys(m) {
		if strings.EqualFold(k, name) {
			return m[k], true
		}
	}
	var none V
	return none, false
}

// ParseMetric reads the name of a metric (metrics.ParseName).
func ParseMetric(name string) (Metric, error) {
	n, err := metrics.ParseName(name)
	return Metric{Name: name, quantity: n.Quantity.Name, arg: n.Argument, window: n.Window, view: n.View}, err
}

// what is the definition of the metric's quantity.
func (m Metric) what() metrics.Quantity {
	q, _ := metrics.Find(m.quantity)
	return q
}

// In gives the metric of another quantity in the same rounds: of last10 and domain:Art, domain:Art@last10. Quantities
// that are taken over all rounds stay so.
func (m Metric) In(quantity, arg string) Metric {
	out := Metric{quantity: quantity, arg: arg, window: m.window, Name: quantity}
	if m.view != "" && out.Follows() {
		out.view, out.Name = m.view, m.view+"/"+quantity
	}
	if arg != "" {
		out.Name += ":" + arg
	}
	usual := out.what().Window
	if fixed := []string{metrics.All, metrics.First}; slices.Contains(fixed, usual) ||
		slices.Contains(fixed, m.window) {
		out.window = usual
	}
	if out.window != usual {
		out.Name += "@" + out.window
	}
	return out
}

// Under is the metric's name in the head of a column of a table about another metric: with its window, where that is
// not the other's.
func (m Metric) Under(other Metric) string {
	if m.window == other.window || m.window == metrics.First || m.Name == m.window || strings.Contains(m.Name, "@") {
		return m.Name
	}
	return m.Name + "@" + m.window
}

// Title says in words what the metric is.
func (m Metric) Title() string { return m.subject() + ", " + metrics.InWords(m.window) }

// subject is the title without the window.
func (m Metric) subject() string {
	t := m.what().Title
	if m.view != "" {
		t = m.view + " " + t
	}
	if m.arg != "" {
		t += " " + m.arg
	}
	return t
}

// Unit is what its values are counted in.
func (m Metric) Unit() metrics.Unit { return m.what().Unit }

// Factor is what its values are multiplied by to be shown in its unit.
func (m Metric) Factor() float64 {
	if m.Unit() == metrics.Percent {
		return 100
	}
	return 1
}

// LessIsBetter is true of losses, costs and deviations.
func (m Metric) LessIsBetter() bool { return m.what().Less }

// Of computes the metric of a run; false where its rounds do not have it.
func (m Metric) Of(r *Run) (float64, bool) {
	var values []float64
	for _, i := range m.rounds(r) {
		v, ok := m.of(r.Rounds[i])
		if !ok {
			return 0, false
		}
		values = append(values, v)
	}
	mean, _ := metrics.MeanStd(values)
	return mean, len(values) > 0
}

// rounds are the indices of the rounds that count: of those that have the quantity, or for best, of those tested.
func (m Metric) rounds(r *Run) []int {
	by := m
	if m.window == metrics.Best {
		by = Metric{quantity: metrics.Accuracy, view: m.view}
	}
	var have []int
	top, topAt := -1.0, -1
	for i, round := range r.Rounds {
		if v, ok := by.of(round); ok {
			have = append(have, i)
			if v > top {
				top, topAt = v, i
			}
		}
	}
	switch {
	case m.window == metrics.BestVal:
		return bestValidated(r.Rounds) // a run selects one round, by its headline, whatever is read of it
	case len(have) == 0 || m.window == metrics.All:
		return have
	case m.window == metrics.Best:
		return []int{topAt}
	case m.window == metrics.First:
		return have[:1]
	}
	n, _ := metrics.LastN(m.window)
	return have[max(0, len(have)-n):]
}

// PerClient computes the metric of every client of a run, where the metric is an accuracy that clients have; otherwise
// it is their accuracy in the last tested round, of the same evaluation. Nil where the rounds do not have it, of every
// client.
func (m Metric) PerClient(r *Run) []float64 {
	if !m.what().Evaluated || m.what().Window == metrics.First ||
		slices.Contains([]string{metrics.Set, metrics.SetMean, metrics.Val, metrics.HM, metrics.HM3, metrics.Honest,
			metrics.Success}, m.quantity) {
		m = Metric{quantity: metrics.Accuracy, window: metrics.Last, view: m.view}
	}
	var sum []float64
	rounds := m.rounds(r)
	for _, i := range rounds {
		e := m.evaluation(r.Rounds[i])
		if e == nil {
			return nil
		}
		if sum == nil {
			sum = make([]float64, len(e.PerClient))
		}
		if len(e.PerClient) == 0 || len(e.PerClient) != len(sum) {
			return nil
		}
		for k, v := range e.PerClient {
			sum[k] += v / float64(len(rounds))
		}
	}
	return slices.Clip(sum)
}

// Domains lists the domains that occur in the rounds of some groups, Sets the evaluation sets.
func Domains(groups []*Group) []string {
	return names(groups, func(r Round) []string {
		var out []string
		for _, e := range r.all() {
			out = append(out, sortedKeys(e.PerDomain)...)
		}
		return out
	})
}

// Sets lists the evaluation sets that occur in the rounds of some groups.
func Sets(groups []*Group) []string {
	return names(groups, func(r Round) []string { return sortedKeys(r.EvaluationSets) })
}

// Notes lists the notes that occur in the rounds of some groups.
func Notes(groups []*Group) []string {
	return names(groups, func(r Round) []string { return sortedKeys(r.Notes) })
}

func names(groups []*Group, of func(Round) []string) []string {
	all := map[string]bool{}
	for _, g := range groups {
		for _, run := range g.Runs {
			for _, r := range run.Rounds {
				for _, n := range of(r) {
					all[n] = true
				}
			}
		}
	}
	return sortedKeys(all)
}
