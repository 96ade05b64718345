package tables

import (
	"cmp"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
)

// units are the possible units of a card's numbers: the factor for a metric's values, and the suffix. The empty name is
// the unit without a unit in the card.
var units = map[metrics.Unit]map[string]struct {
	factor float64
	name   string
}{
	metrics.Percent: {"": {100, "%"}, "percent": {100, "%"}, "fraction": {1, ""}},
	metrics.Second:  {"": {1, "s"}, "seconds": {1, "s"}, "minutes": {1. / 60, "min"}, "hours": {1. / 3600, "h"}},
	metrics.Byte: {"": {1, "bytes"}, "bytes": {1, "bytes"}, "kilobytes": {1e-3, "kB"}, "megabytes": {1e-6, "MB"},
		"gigabytes": {1e-9, "GB"}},
	metrics.Count: {"": {1, "count"}, "count": {1, "count"}},
	metrics.Plain: {"": {1, ""}, "plain": {1, ""}},
}

// shownIn returns the factor and the unit of a metric's displayed values: the card's unit if it fits the metric.
func (b *builder) shownIn(m results.Metric) (factor float64, name string) {
	u, ok := units[m.Unit][b.cardUnit()]
	if !ok {
		u = units[m.Unit][""]
	}
	return u.factor, u.name
}

// cardUnit returns the unit of the card's numbers.
func (b *builder) cardUnit() string {
	if b.Card == nil || b.Card.Numbers.Unit == "" {
		return "percent"
	}
	return b.Card.Numbers.Unit
}

// paper returns the paper's number for a cell. In a table with both evaluations it stands only beside its own
// evaluation. The difference from our number is meaningful only in that evaluation.
func (b *builder) paper(cell Cell) *Number {
	number := b.at(cell.Labels, cell.Metric)
	if number == nil {
		return nil
	}

	stands := b.stands(cell.Labels)
	if label, both := cell.Labels[EvaluationAxis]; both && b.pseudo(EvaluationAxis) && label != cmp.Or(stands,
		results.GlobalView) {
		return nil
	}

	number.Comparable = number.Comparable && (stands == "" || cell.View == "" || stands == cell.View)
	return number
}

// at returns the card's number at some labels. It returns nil if the card's numbers do not distinguish labels that the
// table distinguishes, or if their unit does not fit the metric.
func (b *builder) at(labels map[string]string, m results.Metric) *Number {
	if b.Card == nil {
		return nil
	}

	if _, fits := units[m.Unit][b.cardUnit()]; !fits {
		return nil
	}

	for axis, label := range labels {
		if axis == EvaluationAxis && b.pseudo(axis) {
			continue
		}
		if !slices.Contains(b.Card.Numbers.By, axis) && label != AverageLabel && len(b.labels[axis]) > 1 {
			return nil
		}
	}

	mean, std, has, ok := b.Card.Number(b.single(labels))
	if !ok {
		return nil // unknown, or the table averages over an axis of the numbers
	}

	return &Number{Mean: mean, Std: std, HasStd: has, Comparable: !b.Smoke}
}
