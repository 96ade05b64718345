package tables

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// methodAxis is the axis of the competing labels, if a grid has it.
const methodAxis = "method"

// best marks the best and the second best of comparable cells: cells that differ only in the method, or without an axis
// of methods, cells of one column. Cells of different evaluations, metrics or test data are not comparable. Costs,
// deviations and losses have no marks (metrics.Definition.Lower). Numbers that look equal in the table share a place.
func (b *builder) best() {
	compared, data := map[string][]*Cell{}, map[string]string{}
	axes := slices.Concat(b.Rows, b.Columns)
	byMethod := slices.Contains(axes, methodAxis)
	for _, row := range b.table.Rows {
		for j, cell := range row.Cells {
			if cell.Blank || cell.Stat.N() == 0 || cell.Metric.Lower || byMethod &&
				cell.Labels[methodAxis] == AverageLabel || !byMethod && slices.Contains(row.Labels, AverageLabel) {
				continue
			}

			key := fmt.Sprint(j)
			if byMethod {
				key = ""
				for _, a := range axes {
					if a != methodAxis {
						key += fmt.Sprintf("%q ", cell.Labels[a])
					}
				}
			}

			key += fmt.Sprintf(" %q %q", cell.View, cell.Metric.Name)
			if other, ok := data[key]; ok && other != cell.data {
				b.table.severalData = true
			}

			data[key] = cell.data
			key += fmt.Sprintf(" %q", cell.data)
			compared[key] = append(compared[key], &row.Cells[j])
		}
	}

	for _, cells := range compared {
		rank(cells)
	}
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
