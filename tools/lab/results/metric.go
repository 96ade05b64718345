package results

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// Metric is a number of a run: a definition with its argument, the window of rounds, and the evaluation.
type Metric struct {
	Name string // the given name: last10, domain:Art, f1@last5
	metrics.Definition
	arg    string // argument of a definition with one
	window string
	view   string // GlobalView or PersonalView; empty for each run's headline
}

// ParseMetric parses the name of a metric (metrics.ParseName).
func ParseMetric(name string) (Metric, error) {
	n, err := metrics.ParseName(name)
	return Metric{name, n.Metric, n.Argument, n.Window, n.View}, err
}

// usual returns the metric of a definition in the rounds that are usual for it.
func usual(definition, arg string) Metric {
	d, _ := metrics.Find(definition)
	return Metric{definition, d, arg, d.Window, ""}
}

// of reports whether the metric is of a definition.
func (m Metric) of(definition string) bool { return m.Definition.Name == definition }

// WithDefinition returns the metric of another definition in the same rounds: In on last10 with domain:Art returns
// domain:Art@last10. Metrics over all rounds keep all rounds.
func (m Metric) WithDefinition(definition, arg string) Metric {
	out := usual(definition, arg)
	if m.view != "" && out.UsesHeadline() {
		out.view, out.Name = m.view, m.view+"/"+definition
	}

	if arg != "" {
		out.Name += ":" + arg
	}

	if fixed := []string{metrics.All, metrics.First}; !slices.Contains(fixed, out.Window) &&
		!slices.Contains(fixed, m.window) && m.window != out.Window {
		out.window = m.window
		out.Name += "@" + m.window
	}

	return out
}

// ColumnHead returns the metric's name for a column head of a table about another metric. The name includes the window
// if the windows differ.
func (m Metric) ColumnHead(other Metric) string {
	if m.window == other.window || m.window == metrics.First || m.Name == m.window || strings.Contains(m.Name, "@") {
		return m.Name
	}
	return m.Name + "@" + m.window
}

// Heading describes the metric in a few words for axes and choosers.
func (m Metric) Heading() string {
	head, _, _ := strings.Cut(m.subject(), ",")
	return head
}

// subject describes the metric in words, without its rounds.
func (m Metric) subject() string {
	t := m.Title
	if m.view != "" {
		t = m.view + " " + t
	}

	if m.arg != "" {
		t += " " + m.arg
	}

	return t
}

// Factor returns the factor from values to displayed values in the metric's unit.
func (m Metric) Factor() float64 {
	if m.Unit == metrics.Percent {
		return 100
	}
	return 1
}

// Value computes the metric of a run; false if its rounds do not have it.
func (m Metric) Value(r *Run) (float64, bool) {
	var values []float64
	for _, i := range m.rounds(r) {
		v, ok := m.read(r.Rounds[i])
		if !ok {
			return 0, false
		}
		values = append(values, v)
	}

	return metrics.Mean(values), len(values) > 0
}

// read returns the metric in a round; false if the round does not have it.
func (m Metric) read(r Round) (float64, bool) {
	in := m.headline(r).Metrics()
	in.TotalBytes, in.TotalParameters = r.Sent.Bytes, r.Sent.Parameters
	return m.Read(in, m.arg)
}

// rounds returns the indices of the rounds in the window, among the rounds with the quantity, or for best, among the
// tested rounds.
func (m Metric) rounds(run *Run) []int {
	by := m
	switch m.window {
	case metrics.Best:
		by = usual(metrics.Accuracy, "")
		by.view = m.view
	case metrics.BestVal: // a run selects one round by its headline, for all metrics
		by = usual(metrics.Val, "")
	}

	var have []int
	top, topAt := -1.0, -1
	for i, round := range run.Rounds {
		if v, ok := by.read(round); ok {
			have = append(have, i)
			if metrics.Above(v, top) {
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

// PerClient computes the metric of every client of a run, if the metric is an accuracy per client. Otherwise it returns
// the clients' accuracies in the last tested round, in the same evaluation. It returns nil unless the rounds have the
// values of every client.
func (m Metric) PerClient(r *Run) []float64 {
	if len(m.Statistics) == 0 { // not computed from the clients' own test data
		view := m.view
		m = usual(metrics.Accuracy, "")
		m.view = view
	}

	var sum []float64
	rounds := m.rounds(r)
	for _, i := range rounds {
		e := m.headline(r.Rounds[i]).Evaluation
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

// Arguments lists the arguments of a metric in the rounds of some groups, sorted; numbers of steps are sorted
// numerically.
func Arguments(name string, groups []*Group) []string {
	definition, _ := metrics.Find(name)
	all := map[string]bool{}
	for run := range Runs(groups) {
		for _, r := range run.Rounds {
			if r.Evaluation == nil { // the method lacks the headline evaluation
				r = r.in(map[bool]method.View{true: method.PersonalView}[r.Evaluations.Global == nil])
			}
			for _, a := range definition.Arguments(r.Metrics()) {
				all[a] = true
			}
		}
	}

	out := SortedKeys(all)
	if definition.Argument == metrics.StepsPlaceholder {
		slices.SortFunc(out, func(a, b string) int {
			m, _ := strconv.Atoi(a)
			n, _ := strconv.Atoi(b)
			return cmp.Compare(m, n)
		})
	}

	return out
}
