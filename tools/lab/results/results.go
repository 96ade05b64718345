package results

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
)

// Results is the content of some folders.
type Results struct {
	Plans  []*Plan  // of the sweeps, in the order of the given folders
	Groups []*Group // groups of sweeps in the order of the plan, then runs without a sweep
	Notes  []string // omissions and their reasons, one line each
}

// Plan is the plan of a sweep and its folder.
type Plan struct {
	configs.Plan
	Dir    string
	Merged bool // of several sweeps, whose runs may differ in more than the axes
}

// Sweep returns the name of the sweep; empty for nil, which stands for no plan.
func (p *Plan) Sweep() string {
	if p == nil {
		return ""
	}
	return p.Name
}

// Axis is one dimension of a grid.
type Axis = configs.PlanAxis

// Group is the runs of one experiment, which differ only in the seed.
type Group struct {
	Name string // unique
	// Experiment is unique.
	Experiment string
	Labels     map[string]string // by axis; {"run": name} for runs without a sweep
	Plan       *Plan             // nil for none
	Runs       []*Run            // by seed
}

// State is the progress of a run.
type State string

// States of a run.
const (
	Done       State = "done"
	Running    State = "running"    // a process works on it
	Stalled    State = "stalled"    // a process holds it and has given no sign of life for long
	Stopped    State = "stopped"    // interrupted after a round
	Killed     State = "killed"     // its process ended and recorded no end
	Unfinished State = "unfinished" // no result, and nothing says whether a process works on it
	Failed     State = "failed"     // with an error, or with contradictory files
	Missing    State = "missing"    // planned, not started
)

// States are all states.
var States = []State{Done, Running, Stalled, Stopped, Killed, Unfinished, Failed, Missing}

// begun reports whether a run has started and has not failed.
func (s State) begun() bool { return s != Failed && s != Missing }

// Run is one run folder.
type Run struct {
	Dir       string
	Name      string
	Joined    bool   // it is the part of a client of a server's run, without rounds
	Method    string // with its wrappers, joined by " + "
	Seed      uint64
	State     State
	Reason    string             // reason of a state other than done, one line
	Sign      time.Time          // of a run without a result: the last sign of life of its process
	Left      time.Duration      // of a running one: remaining time at the pace of its rounds; 0 if unknown
	Config    string             // content of config.yaml
	Identity  *identity.Identity // identity of its experiment; nil if unknown
	Execution map[string]string  // circumstances of the execution by kind: commit, provider and so on
	Planned   int                // rounds in the configuration; 0 if unknown
	EvalLast  int                // eval.last of the configuration; 0 if unknown
	BestVal   bool               // eval.select of the configuration is best-val
	Target    float64            // eval.target of the configuration, in percent; 0 for none
	Rounds    []Round
	Summary   record.Summary // of a finished run
	View      string         // headline evaluation of Rounds; empty if unknown
	Tags      []string       // from TagsFile
	// TestData describes the data and rounds of clients' tests; it is equal for comparable runs.
	TestData string
}

// RunAxis is the axis of runs without a sweep.
const RunAxis = "run"

// Of returns the groups of a plan, or with nil, the groups without a plan.
func (r *Results) Of(p *Plan) []*Group {
	return slices.DeleteFunc(slices.Clone(r.Groups), func(g *Group) bool { return g.Plan != p })
}

// Runs iterates over the runs of some groups.
func Runs(groups []*Group) iter.Seq[*Run] {
	return func(yield func(*Run) bool) {
		for _, g := range groups {
			for _, r := range g.Runs {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// DoneRuns iterates over the finished runs of some groups.
func DoneRuns(groups []*Group) iter.Seq[*Run] {
	return func(yield func(*Run) bool) {
		for r := range Runs(groups) {
			if r.State == Done && !yield(r) {
				return
			}
		}
	}
}

// Axes returns the axes of some groups with the occurring labels, in the order of the plan or of first occurrence.
func Axes(groups []*Group) []Axis {
	var out []Axis
	at := map[string]int{}
	add := func(name string, labels ...string) {
		i, ok := at[name]
		if !ok {
			i, at[name] = len(out), len(out)
			out = append(out, Axis{Name: name})
		}
		out[i].Labels = AppendMissing(out[i].Labels, labels...)
	}

	plans, used := map[*Plan]bool{nil: true}, map[[2]string]bool{}
	for _, g := range groups {
		if !plans[g.Plan] {
			plans[g.Plan] = true
			for _, a := range g.Plan.Axes {
				add(a.Name, a.Labels...)
			}
		}
		for _, name := range SortedKeys(g.Labels) {
			add(name, g.Labels[name])
			used[[2]string{name, g.Labels[name]}] = true
		}
	}

	for i, a := range out {
		out[i].Labels = slices.DeleteFunc(a.Labels, func(l string) bool { return !used[[2]string{a.Name, l}] })
	}

	return slices.DeleteFunc(out, func(a Axis) bool { return len(a.Labels) == 0 })
}

// Labels returns the labels of one axis of some groups; none without the axis.
func Labels(groups []*Group, axis string) []string {
	for _, a := range Axes(groups) {
		if a.Name == axis {
			return a.Labels
		}
	}
	return nil
}

// NeedAxisName reports whether labels need the name of their axis, as numbers do.
func NeedAxisName(labels []string) bool {
	return slices.ContainsFunc(labels, func(l string) bool {
		_, err := strconv.ParseFloat(l, 64)
		return l != "" && (err == nil || !strings.ContainsFunc(l, unicode.IsLetter) ||
			slices.Contains([]string{"true", "false", "none"}, l))
	})
}

// WithLabels returns the groups with the given labels.
func WithLabels(groups []*Group, labels map[string]string) []*Group {
	return slices.DeleteFunc(slices.Clone(groups), func(g *Group) bool { return !g.Has(labels) })
}

// Has reports whether the group has the given labels, possibly among others.
func (g *Group) Has(labels map[string]string) bool {
	for k, v := range labels {
		if have, ok := g.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Done returns the finished runs.
func (g *Group) Done() []*Run { return slices.Collect(DoneRuns([]*Group{g})) }

// Drawn returns the runs of the group's curves: the finished runs, or without any, all runs.
func (g *Group) Drawn() []*Run {
	if done := g.Done(); len(done) > 0 {
		return done
	}
	return g.Runs
}

// Method returns the trained method of the group's runs; "" if unknown.
func (g *Group) Method() string {
	for _, r := range g.Runs {
		if r.Method != "" {
			return r.Method
		}
	}
	return ""
}

// titles returns labels in the order of the axes.
func titles(axes []Axis, labels map[string]string) []string {
	var out []string
	for _, a := range axes {
		if l, ok := labels[a.Name]; ok {
			out = append(out, l)
		}
	}
	return out
}

// titled returns a group's name from its labels.
func titled(axes []Axis, labels map[string]string) string {
	return strings.Join(titles(axes, labels), ", ")
}

func sortRuns(runs []*Run) {
	slices.SortStableFunc(runs, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Dir, b.Dir))
	})
}

// DefaultMetric returns the accuracy in the window of all runs' configurations, or the last round's accuracy if the
// windows differ.
func DefaultMetric(groups []*Group) string {
	if windows := Windows(groups); len(windows) == 1 {
		return windows[0]
	}
	return metrics.Last
}

// Windows returns the accuracies that the configurations of runs make the result (eval.last, or eval.select: best-val),
// sorted.
func Windows(groups []*Group) []string {
	windows := map[string]bool{}
	for r := range Runs(groups) {
		switch {
		case r.BestVal:
			windows[metrics.BestVal] = true
		case r.EvalLast == 1:
			windows[metrics.Last] = true
		case r.EvalLast > 1:
			windows[metrics.Last+strconv.Itoa(r.EvalLast)] = true
		}
	}

	return SortedKeys(windows)
}
