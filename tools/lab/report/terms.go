package report

import (
	"fmt"
	"slices"

	"promptfed/configs"
	"promptfed/federation/method"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// termsPanel shows the gradient norms of the terms of the loss, relative to cross entropy.
var termsPanel = panel{kind: "terms", files: [][2]string{{"terms"}},
	title: "Terms of the loss", draw: (*view).terms, single: true,
	read: "A line is the norm of a term's gradient divided by that of cross entropy.",
	part: page.Panel{Name: "terms", Title: "Terms of the loss"},
	data: func(r *results.Run) (any, error) {
		return slices.DeleteFunc(results.Terms(r.Rounds), func(t *results.Term) bool { return t.Param != "" }), nil
	}}

// weakTerms notes terms of losses with almost no effect in every run of a group that measured them.
func (v *view) weakTerms(main *tables.Table) {
	for _, group := range v.groups {
		var weak []string
		var rounds []results.Round // of a run with measured terms
		measured := 0
		for _, r := range group.Runs {
			if results.Terms(r.Rounds) == nil {
				continue
			}
			vanishing := results.VanishingTerms(r.Rounds)
			if measured++; measured == 1 {
				weak, rounds = vanishing, r.Rounds
			}
			weak = slices.DeleteFunc(weak, func(t string) bool { return !slices.Contains(vanishing, t) })
		}
		for _, t := range weak {
			v.remark(main, results.VanishingNote(group.Name, t, rounds))
		}
	}
}

// maxTermPanels is the largest number of groups in the figure of terms.
const maxTermPanels = 12

// terms draws the gradient norm of each term of the loss over rounds, relative to cross entropy, group by group. It
// omits a cross entropy that is the only such term, because its value is 1.
func (v *view) terms(f configs.Figure, _ results.Metric) (figures.Drawer, error) {
	out := figures.Curves{Title: f.Title, Colours: figures.Colours{}, // terms are no methods
		Reference: &figures.Reference{Label: fmt.Sprint(results.VanishingThreshold), Y: results.VanishingThreshold}}
	more := 0
	for _, g := range v.groups {
		linePanel := figures.LinePanel{Title: g.Name, X: figures.Axis{Label: "round", Whole: true},
			Y: figures.Axis{Label: "gradient over cross entropy's", Log: true}}
		if linePanel.Lines = v.termLines(g); len(linePanel.Lines) == 0 {
			continue
		}
		if len(out.Panels) == maxTermPanels {
			more++
			continue
		}
		out.Panels = append(out.Panels, linePanel)
	}

	if more > 0 {
		v.note("the figure of terms shows the first %d of %d groups of runs that measured them", maxTermPanels,
			maxTermPanels+more)
	}

	return out, nil
}

// termLines returns the terms of a group, with the mean and the deviation over the seeds with a value in a round.
func (v *view) termLines(group *results.Group) []figures.Line {
	var names []string
	for _, r := range group.Runs {
		for _, t := range results.Terms(r.Rounds) {
			if t.Param == "" {
				names = results.AppendMissing(names, t.Name)
			}
		}
	}

	entropies := 0
	for _, n := range names {
		if method.IsCrossEntropy(n) {
			entropies++
		}
	}

	var out []figures.Line
	for _, name := range names {
		if method.IsCrossEntropy(name) && entropies == 1 {
			continue
		}

		c := results.CurveOf([]*results.Group{group}, func(r results.Round) (float64, bool) {
			for _, t := range r.Terms {
				if t.Name == name && t.Relative != nil {
					return *t.Relative, true
				}
			}
			return 0, false
		})

		l := figures.Line{Label: name, Y: c.Mean, Spread: c.Std}
		for _, round := range c.Rounds {
			l.X = append(l.X, float64(round))
		}

		if slices.ContainsFunc(l.Y, func(y float64) bool { return y > 0 }) {
			out = append(out, l)
		}
	}

	return out
}
