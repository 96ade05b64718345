package results

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// Results is what was found under some folders.
type Results struct {
	Plans  []*Plan  // of the sweeps that were found, in the order of the folders given
	Groups []*Group // those of a sweep in the order of its plan, then runs that belong to none
	Notes  []string // what was left out and why, one line each
}

// Plan is the plan of a sweep and the folder that it lies in.
type Plan struct {
	configs.Plan
	Dir string
}

// Axis is one dimension of a grid.
type Axis = configs.PlanAxis

// Group is the runs of one experiment: they differ in nothing but the seed.
type Group struct {
	Name string // no other group has it
	// Experiment is equal for no other group.
	Experiment string
	Labels     map[string]string // by axis; {"run": name} of runs that belong to no sweep
	Plan       *Plan             // nil for none
	Runs       []*Run            // by seed
}

// State is how far a run came.
type State string

// States of a run.
const (
	Done       State = "done"
	Unfinished State = "unfinished" // it has rounds, but no result
	Failed     State = "failed"     // with an error, or its files contradict each other
	Missing    State = "missing"    // planned, not started
)

// Run is one run folder.
type Run struct {
	Dir       string
	Name      string
	Method    string // with its wrappers, joined by " + "
	Seed      uint64
	State     State
	Why       string               // of a state other than done, one line
	Config    string               // config.yaml as it is
	Identity  *experiment.Identity // which experiment it belongs to; nil where nothing says it
	Execution map[string]string    // how it was executed, by what: commit, provider and so on
	Planned   int                  // rounds that the configuration asks for; 0 where unknown
	EvalLast  int                  // eval.last of the configuration; 0 where unknown
	BestVal   bool                 // eval.select of the configuration is best-val
	Target    float64              // eval.target of the configuration, in percent; 0 for none
	Rounds    []Round
	Summary   record.Summary // of a run that is done
	View      string         // the evaluation that the headlines of Rounds are of; empty where that is unknown
	Tags      []string       // from TagsFile
	// what clients are tested on, and when: equal for runs that compare
	TestData string
}

// RunAxis is the axis of runs that belong to no sweep.
const RunAxis = "run"

// Of returns the groups of a plan; of nil, those of no plan.
func (r *Results) Of(p *Plan) []*Group {
	var out []*Group
	for _, g := range r.Groups {
		if g.Plan == p {
			out = append(out, g)
		}
	}
	return out
}

// Axes returns the axes of some groups with the labels that occur: in the order of their plan, or sorted by first
// occurrence.
func Axes(groups []*Group) []Axis {
	var out []Axis
	at := map[string]int{}
	add := func(name, label string, used bool) {
		i, ok := at[name]
		if !ok {
			i, at[name] = len(out), len(out)
			out = append(out, Axis{Name: name})
		}
		if used && !slices.Contains(out[i].Labels, label) {
			out[i].Labels = append(out[i].Labels, label)
		}
	}
	used := map[string]map[string]bool{}
	for _, g := range groups {
		for name, label := range g.Labels {
			if used[name] == nil {
				used[name] = map[string]bool{}
			}
			used[name][label] = true
		}
	}
	plans := map[*Plan]bool{nil: true}
	for _, g := range groups {
		if !plans[g.Plan] {
			plans[g.Plan] = true
			for _, a := range g.Plan.Axes {
				for _, l := range a.Labels {
					add(a.Name, l, used[a.Name][l])
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.Labels)) {
			add(name, g.Labels[name], true)
		}
	}
	return slices.DeleteFunc(out, func(a Axis) bool { return len(a.Labels) == 0 })
}

// Labels returns the labels of one axis of some groups; none where they do not have it.
func Labels(groups []*Group, axis string) []string {
	for _, a := range Axes(groups) {
		if a.Name == axis {
			return a.Labels
		}
	}
	return nil
}

// Bare reports whether labels of an axis mean nothing without its name, such as numbers.
func Bare(labels []string) bool {
	return slices.ContainsFunc(labels, func(l string) bool {
		_, err := strconv.ParseFloat(l, 64)
		return l != "" && (err == nil || !strings.ContainsFunc(l, unicode.IsLetter) ||
			slices.Contains([]string{"true", "false", "none"}, l))
	})
}

// Where returns the groups that have these labels.
func Where(groups []*Group, labels map[string]string) []*Group {
	var out []*Group
	for _, g := range groups {
		if g.Has(labels) {
			out = append(out, g)
		}
	}
	return out
}

// Has reports whether the group has these labels, among others.
func (g *Group) Has(labels map[string]string) bool {
	for k, v := range labels {
		if have, ok := g.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Done returns the runs that are done.
func (g *Group) Done() []*Run {
	var out []*Run
	for _, r := range g.Runs {
		if r.State == Done {
			out = append(out, r)
		}
	}
	return out
}

// Method is what the group's runs train; "" where that is unknown.
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

// titled names a group by its labels.
func titled(axes []Axis, labels map[string]string) string {
	return strings.Join(titles(axes, labels), ", ")
}

func sortRuns(runs []*Run) {
	slices.SortStableFunc(runs, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Dir,
			b.Dir))
	})
}

// DefaultMetric is the accuracy as all runs' configurations ask for it with eval.last, or with eval.select: best-val;
// the last round's where they differ.
func DefaultMetric(groups []*Group) string {
	n, selects := 0, 0
	for _, g := range groups {
		for _, r := range g.Runs {
			if r.BestVal {
				selects++
				continue
			}
			if r.EvalLast == 0 {
				continue
			}
			if n != 0 && n != r.EvalLast {
				return metrics.Last
			}
			n = r.EvalLast
		}
	}
	switch {
	case selects > 0 && n == 0:
		return metrics.BestVal
	case n < 2 || selects > 0:
		return metrics.Last
	}
	return metrics.Last + strconv.Itoa(n)
}
