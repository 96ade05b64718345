package tables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/tools/results"
)

// units are those that a card may ask for: what a metric's values are multiplied by, and what is written behind them.
var units = map[results.Unit]map[string]struct {
	factor float64
	name   string
}{
	results.Percent: {"percent": {100, "%"}, "fraction": {1, ""}},
	results.Second:  {"seconds": {1, "s"}, "minutes": {1. / 60, "min"}, "hours": {1. / 3600, "h"}},
	results.Byte:    {"bytes": {1, "bytes"}, "kilobytes": {1e-3, "kB"}, "megabytes": {1e-6, "MB"}, "gigabytes": {1e-9, "GB"}},
	results.Plain:   {"plain": {1, ""}},
}

// usual is the unit of a metric that no card says anything about.
var usual = map[results.Unit]string{results.Percent: "percent", results.Second: "seconds", results.Byte: "bytes", results.Plain: "plain"}

// shownIn is how a metric's values are shown: as the card's numbers are, if they can be.
func (b *builder) shownIn(m results.Metric) (factor float64, name string) {
	u, ok := units[m.Unit()][b.cardUnit()]
	if !ok {
		u = units[m.Unit()][usual[m.Unit()]]
	}
	return u.factor, u.name
}

// cardUnit is the unit of the card's numbers.
func (b *builder) cardUnit() string {
	if b.Card == nil || b.Card.Numbers.Unit == "" {
		return "percent"
	}
	return b.Card.Numbers.Unit
}

// number is the paper's number at some labels. There is none where the card's numbers do not tell apart what the table
// does, or are counted in what the metric is not.
func (b *builder) number(labels map[string]string, m results.Metric) *Number {
	if b.Card == nil {
		return nil
	}
	if _, fits := units[m.Unit()][b.cardUnit()]; !fits {
		return nil
	}
	by := b.Card.Numbers.By
	at := maps.Clone(labels)
	for axis, label := range labels {
		if !slices.Contains(by, axis) && label != AverageLabel && len(b.labels[axis]) > 1 {
			return nil
		}
	}
	for _, axis := range by {
		if _, shown := at[axis]; shown {
			continue
		}
		i := slices.IndexFunc(b.grid, func(a results.Axis) bool { return a.Name == axis && len(a.Labels) == 1 })
		if i < 0 {
			return nil // averaged over here, not there
		}
		at[axis] = b.grid[i].Labels[0]
	}
	mean, std, has, ok := b.Card.Number(at)
	if !ok {
		return nil
	}
	return &Number{Mean: mean, Std: std, HasStd: has, Comparable: !b.Smoke}
}

// finish writes what stands around the table.
func (b *builder) finish() {
	t := b.t
	say := func(format string, a ...any) { t.Caption = append(t.Caption, fmt.Sprintf(format, a...)) }
	if slices.Contains(slices.Concat(b.Rows, b.Columns), MetricAxis) {
		for _, m := range b.labels[MetricAxis] {
			if m, err := results.ParseMetric(m); err == nil {
				say("%s: %s.", m.Name, m.Title())
			}
		}
	} else {
		_, unit := b.shownIn(b.metric)
		if unit != "" {
			unit = " (" + unit + ")"
		}
		say("%s%s.", capital(b.metric.Title()), unit)
	}
	t.Caption = append(t.Caption, b.seeds(), b.averagedOver())
	bold, paper := false, false
	for _, r := range t.Rows {
		for _, c := range r.Cells {
			bold, paper = bold || c.Best, paper || c.Paper != nil
		}
	}
	if bold && slices.Contains(slices.Concat(b.Rows, b.Columns), methodAxis) {
		say("Bold: the best method.")
	} else if bold {
		say("Bold: the best of a column.")
	}
	if bold && b.Second {
		say("Underlined: the second best.")
	}
	if paper && b.Smoke {
		say("In brackets: the paper's number; the runs are the experiment's small form (--smoke), so ours do not compare with it.")
	} else if paper {
		say("In brackets: the paper's number, and ours less the paper's.")
	}
	t.Caption = slices.DeleteFunc(t.Caption, func(s string) bool { return s == "" })
	if c := b.Card; c != nil {
		for _, s := range c.Wrong {
			t.Remarks = append(t.Remarks, "Known to be wrong in the paper: "+s)
		}
		for _, s := range c.Differs {
			t.Remarks = append(t.Remarks, "Differs from the paper: "+s)
		}
		if c.NoNumbers != "" {
			t.Remarks = append(t.Remarks, "No numbers of the paper: "+c.NoNumbers)
		}
	}
}

// seeds says what the numbers are means over.
func (b *builder) seeds() string {
	var seeds []string
	for _, g := range b.groups {
		for _, r := range g.Runs {
			if s := fmt.Sprint(r.Seed); !slices.Contains(seeds, s) {
				seeds = append(seeds, s)
			}
		}
	}
	if len(seeds) == 1 {
		return "One seed: " + seeds[0] + "."
	}
	return fmt.Sprintf("Mean ± %s standard deviation over the seeds %s.", b.Spread, strings.Join(seeds, ", "))
}

// averagedOver names the axes that are in neither rows nor columns.
func (b *builder) averagedOver() string {
	var over []string
	for _, a := range b.grid {
		if !slices.Contains(slices.Concat(b.Rows, b.Columns), a.Name) && len(a.Labels) > 1 {
			over = append(over, fmt.Sprintf("%s (%s)", a.Name, strings.Join(a.Labels, ", ")))
		}
	}
	if len(over) == 0 {
		return ""
	}
	return "Averaged over " + strings.Join(over, " and ") + "."
}
