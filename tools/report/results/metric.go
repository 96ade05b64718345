package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

// Metric is a number that a run gives: a quantity of its rounds, and which of the rounds count.
type Metric struct {
	Name     string // as it is asked for: last10, domain:Art, f1@last5
	quantity string
	arg      string // of domain, set and note
	window   string
	view     string // GlobalView or PersonalView; empty for the headline of each run
}

// Quantities of a round.
const (
	Accuracy   = "accuracy" // mean over clients
	Weighted   = "weighted" // every test example counts the same, not every client
	F1         = "f1"
	Worst      = "worst" // client
	Domain     = "domain"
	ClientStd  = "client-std"
	DomainMean = "domain-mean"
	DomainStd  = "domain-std"
	Set        = "set"
	SetMean    = "set-mean"
	Note       = "note" // of a method or of what carries messages, such as epsilon
	Loss       = "loss"
	Bytes      = "bytes"
	Seconds    = "seconds"
)

// Windows of rounds, beside lastN for the last N tested ones.
const (
	last = "last" // tested round
	best = "best" // tested round by accuracy, chosen on the test data
	// bestVal is the tested round by accuracy on validation data, of equal ones the first.
	bestVal = "best-val"
	all     = "all"
)

// lastN gives the N of a window; false where it is another window, or none.
func lastN(window string) (n int, ok bool) {
	if window == last {
		return 1, true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(window, last))
	return n, err == nil && n > 1 && n < 1e6 && window == last+strconv.Itoa(n)
}

// inWords says what a window is; "" where there is no such window.
func inWords(window string) string {
	switch n, ok := lastN(window); {
	case window == last:
		return "last tested round"
	case ok:
		return fmt.Sprintf("mean of the last %d tested rounds", n)
	case window == best:
		return "best round, chosen on the test data: optimistic"
	case window == bestVal:
		return "round with the best validation accuracy"
	case window == all:
		return "mean of all rounds"
	case window == first:
		return "first round that has it"
	}
	return ""
}

type quantity struct {
	title  string
	window string // unless another is asked for
	unit   Unit
	less   bool // the less the better
	of     func(r Round, arg string) (float64, bool)
}

// Unit is what a metric is counted in.
type Unit string

// Units of metrics.
const (
	Percent Unit = "%" // values are shares of 1
	Byte    Unit = "bytes"
	Second  Unit = "s"
	Count   Unit = "count" // rounds, numbers in tensors
	Plain   Unit = ""
)

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

var quantities = together(map[string]quantity{
	Accuracy: {"accuracy", last, Percent, false, headline(accuracy)},
	Weighted: {"accuracy weighted by test examples", last, Percent, false,
		headline(func(e *record.Evaluation) float64 { return e.Weighted })},
	F1: {"macro-F1", last, Percent, false, headline(func(e *record.Evaluation) float64 { return e.F1 })},
	Worst: {"accuracy of the worst client", last, Percent, false,
		headline(func(e *record.Evaluation) float64 { return e.Worst })},
	Domain: {"accuracy in the domain", last, Percent, false, func(r Round, arg string) (float64, bool) {
		if r.Evaluation == nil {
			return 0, false
		}
		return lookUp(r.PerDomain, arg)
	}},
	ClientStd: {"standard deviation over clients", last, Percent, true,
		headline(func(e *record.Evaluation) float64 { return e.Std })},
	DomainMean: {"mean over domains", last, Percent, false,
		overDomains(func(e *record.Evaluation) float64 { return e.DomainMean })},
	DomainStd: {"standard deviation over domains", last, Percent, true,
		overDomains(func(e *record.Evaluation) float64 { return e.DomainStd })},
	Set: {"accuracy on the evaluation set", last, Percent, false, func(r Round, arg string) (float64, bool) {
		x, _ := lookUp(r.EvaluationSets, arg)
		return evaluated(x.Evaluation, accuracy)
	}},
	SetMean: {"mean over other data sets and left-out domains", last, Percent, false, func(r Round, _ string) (float64,
		bool) {
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
	}},
	Note: {"value noted in the rounds:", last, Plain, true, func(r Round, arg string) (float64, bool) {
		return lookUp(r.Notes, arg)
	}},
	Loss: {"training loss", last, Plain, true, always(func(r Round) float64 { return r.Loss })},
	Bytes: {"bytes per round, all clients, up and down", all, Byte, true,
		always(func(r Round) float64 { return float64(r.BytesUp) + float64(r.BytesDown) })},
	Seconds: {"seconds per round", all, Second, true, always(func(r Round) float64 { return r.Seconds })},
}, evaluations, sent)

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

// ParseMetric reads a metric: a quantity (accuracy, weighted, f1, worst, client-std, domain:NAME, domain-mean,
// domain-std, set:NAME, set-mean, note:NAME, those of evaluations, loss, bytes, seconds, those of communication), a
// window of the accuracy (last, best, best-val, last5 or another number), or a quantity and a window (f1@last10; also
// all). These are of the evaluation that is the headline of a run; behind global/ or personal/ they are of that one, of
// which global and personal alone are the accuracy.
func ParseMetric(name string) (Metric, error) {
	m := Metric{Name: name}
	text, window, given := strings.Cut(name, "@")
	if view, of, cut := strings.Cut(text, "/"); view == GlobalView || view == PersonalView {
		if m.view, text = view, of; !cut {
			text = Accuracy
		}
	}
	if m.view != "" && (text == "" || slices.Contains(neither, text) || strings.HasPrefix(text, Note+":")) {
		return m, noMetric(name, text)
	}
	if inWords(text) != "" && text != all && text != first && !given {
		return Metric{Name: name, quantity: Accuracy, window: text, view: m.view}, nil
	}
	m.quantity, m.arg, _ = strings.Cut(text, ":")
	q, ok := quantities[m.quantity]
	takes := named(m.quantity) != ""
	m.window = q.window
	if given {
		m.window = window
	}
	if _, err := strconv.ParseFloat(m.arg, 64); slices.Contains(towards, m.quantity) && err != nil ||
		given && m.window == first {
		return m, noMetric(name, text)
	}
	if !ok || inWords(m.window) == "" || takes != (m.arg != "") || !takes && strings.Contains(text, ":") {
		return m, noMetric(name, text)
	}
	return m, nil
}

func noMetric(name, text string) error {
	if err := configs.Renamed(text); err != nil {
		return fmt.Errorf("metric %q: %w", name, err)
	}
	return fmt.Errorf("unknown metric %q; use one of %s", name, strings.Join(MetricNames(), ", "))
}

// MetricNames lists what ParseMetric takes.
func MetricNames() []string {
	out := []string{last, best, bestVal, "last5", "last10", GlobalView, PersonalView}
	for _, q := range sortedKeys(quantities) {
		if q != Accuracy { // last
			out = append(out, q+named(q))
		}
	}
	return append(out, "or one of these with a window, as in f1@last10, or of one evaluation, as in global/f1")
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
	if w := quantities[quantity].window; w == all || w == first || m.window == all || m.window == first {
		out.window = w
	}
	if out.window != quantities[quantity].window {
		out.Name += "@" + out.window
	}
	return out
}

// Title says in words what the metric is.
func (m Metric) Title() string {
	t := quantities[m.quantity].title
	if m.view != "" {
		t = m.view + " " + t
	}
	if m.arg != "" {
		t += " " + m.arg
	}
	return t + ", " + inWords(m.window)
}

// Unit is what its values are counted in.
func (m Metric) Unit() Unit { return quantities[m.quantity].unit }

// Factor is what its values are multiplied by to be shown in its unit.
func (m Metric) Factor() float64 {
	if m.Unit() == Percent {
		return 100
	}
	return 1
}

// LessIsBetter is true of losses, costs and deviations.
func (m Metric) LessIsBetter() bool { return quantities[m.quantity].less }

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
	if m.window == best {
		by = Metric{quantity: Accuracy, view: m.view}
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
	case m.window == bestVal:
		return bestValidated(r.Rounds) // a run selects one round, by its headline, whatever is read of it
	case len(have) == 0 || m.window == all:
		return have
	case m.window == best:
		return []int{topAt}
	case m.window == first:
		return have[:1]
	}
	n, _ := lastN(m.window)
	return have[max(0, len(have)-n):]
}

// PerClient computes the metric of every client of a run, where the metric is an accuracy that clients have; otherwise
// it is their accuracy in the last tested round, of the same evaluation. Nil where the rounds do not have it, of every
// client.
func (m Metric) PerClient(r *Run) []float64 {
	if slices.Contains(neither, m.quantity) || slices.Contains(towards, m.quantity) ||
		slices.Contains([]string{Set, SetMean, Val, HM, HM3, Honest, Success}, m.quantity) {
		m = Metric{quantity: Accuracy, window: last, view: m.view}
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
