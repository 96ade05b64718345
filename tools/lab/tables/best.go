package tables

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// methodAxis is the axis of the competing labels, if a grid has it.
const methodAxis = "method"

// best marks the best and the second best of comparable cells: cells that differ only in the method, or without an axis
// of methods, cells of one column. Cells of different evaluations, metrics, test data or points are not comparable.
// Costs, deviations and losses have no marks (metrics.Definition.Lower). Numbers that look equal in the table share a
// place.
func (b *builder) best() {
	compared := map[string][]*Cell{}
	byMethod := b.shows(methodAxis)
	for _, row := range b.table.Rows {
		for j, cell := range row.Cells {
			if cell.Blank || cell.Stat.N() == 0 || byMethod && cell.Labels[methodAxis] == AverageLabel ||
				!byMethod && slices.Contains(row.Labels, AverageLabel) {
				continue
			}

			key := fmt.Sprint(j)
			if byMethod {
				others := maps.Clone(cell.Labels)
				delete(others, methodAxis)
				key = fmt.Sprintf("%q", others)
			}

			key += fmt.Sprintf(" %q %q", cell.View, cell.Metric.Name)
			compared[key] = append(compared[key], &row.Cells[j])
		}
	}

	for _, cells := range compared {
		byData := map[string][]*Cell{}
		for _, c := range complete(cells) {
			if !c.Metric.Lower {
				byData[c.data] = append(byData[c.data], c)
			}
		}

		b.table.severalData = b.table.severalData || len(byData) > 1
		for _, cells := range byData {
			rank(cells)
		}
	}
}

// complete returns the cells that average all points of the grid that any of the cells averages. The others get a note.
func complete(cells []*Cell) []*Cell {
	points := map[string]bool{}
	for _, c := range cells {
		for _, g := range c.groups {
			averaged := maps.Clone(g.Labels)
			maps.DeleteFunc(averaged, func(axis, label string) bool { return c.Labels[axis] == label })
			points[fmt.Sprint(averaged)] = true
		}
	}

	return slices.DeleteFunc(cells, func(c *Cell) bool {
		if len(c.groups) < len(points) {
			c.why = strings.TrimPrefix(fmt.Sprintf("%s; over %d of %d points of the averaged axes, not compared", c.why,
				len(c.groups), len(points)), "; ")
		}
		return len(c.groups) < len(points)
	})
}

func rank(cells []*Cell) {
	score := func(c *Cell) float64 { return math.Round(c.Mean() * math.Pow10(decimals(c.Unit))) }
	slices.SortStableFunc(cells, func(a, b *Cell) int { return cmp.Compare(score(b), score(a)) })
	top, second := score(cells[0]), math.NaN()
	if score(cells[len(cells)-1]) == top {
		return // equal cells, or a single cell: no best
	}

	for _, c := range cells {
		switch v := score(c); {
		case v == top:
			c.Best = true
		case math.IsNaN(second) || v == second:
			second, c.Second = v, true
		}
	}
}
