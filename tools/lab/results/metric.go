package results

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// Metric is a number that a run has: a definition with its argument, the rounds that count, and the evaluation.
type Metric struct {
	Name     string // as it is asked for: last10, domain:Art, f1@last5
	quantity string // of metrics.Definitions
	arg      string // of a definition that has one
	window   string
	view     string // GlobalView or PersonalView; empty for the headline of each run
}

// ParseMetric reads the name of a metric (metrics.ParseName).
func ParseMetric(name string) (Metric, error) {
	n, err := metrics.ParseName(name)
	return Metric{Name: name, quantity: n.Metric.Name, arg: n.Argument, window: n.Window, view: n.View}, err
}

// what is the metric's definition.
func (m Metric) what() metrics.Definition {
	d, _ := metrics.Find(m.quantity)
	return d
}

// In returns the metric of another definition in the same rounds: of last10 and domain:Art, domain:Art@last10. Metrics
// over all rounds stay so.
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

// Under is the metric's name in the head of a column of a table about another metric. It has the window where that
// differs from the other's.
func (m Metric) Under(other Metric) string {
	if m.window == other.window || m.window == metrics.First || m.Name == m.window || strings.Contains(m.Name, "@") {
		return m.Name
	}
	return m.Name + "@" + m.window
}

// Title describes the metric in words.
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
func (m Metric) LessIsBetter() bool { return m.what().Lower }

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
	switch m.window {
	case metrics.Best:
		by = Metric{quantity: metrics.Accuracy, view: m.view}
	case metrics.BestVal: // a run selects one round, by its headline, whatever is read of it
		by = Metric{quantity: metrics.Val}
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
	case len(have) == 0 || m.window == metrics.All:
		return have
	case m.window == metrics.Best || m.window == metrics.BestVal:
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
	if len(m.what().Statistics) == 0 { // it is not of the clients' own test data
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

// Domains lists the domains that occur in the rounds of some groups.
func Domains(groups []*Group) []string { return arguments(metrics.Domain, groups) }

// Sets lists the evaluation sets that occur in the rounds of some groups.
func Sets(groups []*Group) []string { return arguments(metrics.Set, groups) }

// Notes lists the notes that occur in the rounds of some groups.
func Notes(groups []*Group) []string { return arguments(metrics.Note, groups) }

// arguments lists the arguments with which the rounds of some groups have a metric, sorted; numbers of steps are sorted
// as numbers.
func arguments(name string, groups []*Group) []string {
	d, _ := metrics.Find(name)
	all := map[string]bool{}
	for _, g := range groups {
		for _, run := range g.Runs {
			for _, r := range run.Rounds {
				if r.Evaluation == nil { // of a method without the evaluation that headlines are of
					r = r.in(map[bool]method.View{true: method.PersonalView}[r.Evaluations.Global == nil])
				}
				for _, a := range d.Arguments(r.Metrics()) {
					all[a] = true
				}
			}
		}
	}
	out := sortedKeys(all)
	if d.Argument == metrics.BySteps {
		slices.SortFunc(out, func(a, b string) int {
			m, _ := strconv.Atoi(a)
			n, _ := strconv.Atoi(b)
			return cmp.Compare(m, n)
		})
	}
	return out
}
