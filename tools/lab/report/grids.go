package report

import (
	"fmt"
	"slices"

	"promptfed/configs"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// heatmap has a cell for each pair of labels of x and y, with y growing upwards. Cells with equal labels on x, y and
// the panel have a frame: equal prompt lengths in the papers.
func (v *view) heatmap(figure configs.Figure, metric results.Metric) (figures.Drawer, error) {
	columns, rows := facets(v.groups, figure.X), facets(v.groups, figure.Y)
	if figure.X == "" || figure.Y == "" || len(columns) == 0 || len(rows) == 0 {
		return nil, fmt.Errorf("it needs two axes x and y of the sweep")
	}

	slices.Reverse(rows)
	factor, y := scale(metric)
	out := figures.HeatMap{Title: figure.Title, X: figure.X, Y: figure.Y, Value: y.Label,
		ColumnNames: labelsOf(columns), RowNames: labelsOf(rows)}
	for _, facet := range facets(v.groups, figure.Panel) {
		panel := figures.HeatPanel{}
		if figure.Panel != "" {
			panel.Title = figure.Panel + " " + facet.label
		}

		for i, r := range rows {
			var line []float64
			for j, c := range columns {
				groups := results.WithLabels(facet.groups, map[string]string{figure.X: c.label, figure.Y: r.label})
				line = append(line, factor*stat(groups, metric).Mean())
				if c.label == r.label && (figure.Panel == "" || facet.label == c.label) {
					panel.Frames = append(panel.Frames, figures.Cell{Row: i, Column: j})
				}
			}
			panel.Values = append(panel.Values, line)
		}

		out.Panels = append(out.Panels, panel)
	}

	return out, nil
}

func (v *view) scatter3(figure configs.Figure, metric results.Metric) (figures.Drawer, error) {
	factor, y := scale(metric)
	out := figures.Scatter3{Title: figure.Title, Value: y.Label}
	var at [3]map[string]float64
	for k, axis := range []string{figure.X, figure.Y, figure.Z} {
		labels := labelsOf(facets(v.groups, axis))
		x, ok := numbers(labels)
		if axis == "" || len(labels) == 0 || !ok {
			return nil, fmt.Errorf("it needs three axes x, y and z of the sweep, with numbers for labels")
		}
		at[k] = map[string]float64{}
		for i, l := range labels {
			at[k][l] = x[i]
		}
	}

	for _, p := range facets(v.groups, figure.Panel) {
		panel := figures.Scatter3Panel{Title: p.title, X: figure.X, Y: figure.Y, Z: figure.Z}
		for _, x := range facets(p.groups, figure.X) {
			for _, y := range facets(x.groups, figure.Y) {
				for _, z := range facets(y.groups, figure.Z) {
					if s := stat(z.groups, metric); s.N() > 0 {
						panel.Points = append(panel.Points, figures.Point3{X: at[0][x.label], Y: at[1][y.label],
							Z: at[2][z.label], Value: factor * s.Mean()})
					}
				}
			}
		}

		if len(panel.Points) > 0 {
			out.Panels = append(out.Panels, panel)
		}
	}

	return out, nil
}
