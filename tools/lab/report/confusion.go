package report

import (
	"math"
	"slices"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// Limits of the figure of confusion matrices: above mostConfused classes cells are smaller than a point, and above
// fewConfused only two matrices are drawn.
const (
	mostConfused = 200
	fewConfused  = 50
)

// confusionPanel shows which classes are predicted as which.
var confusionPanel = panel{kind: "confusion", files: [][2]string{{"confusion"}},
	title: "Confusion matrices", draw: (*view).confusion, single: true,
	read: "A row is a class. A cell is the share of its test examples that are predicted as the class of the " +
		"column, in the run with the first seed. Hatched rows have no test examples.",
	part: page.Panel{Name: "confusion", Title: "Classes", Half: true},
	data: func(r *results.Run) (any, error) {
		c, err := r.Confusion()
		if c == nil || len(c.Classes) == 0 || c.Global == nil && c.Personal == nil {
			return nil, err
		}
		return c, err
	}}

// confusion draws confusion matrices as shares of each class, of the first finished run of each label: with the
// server's parameters and with the clients' own, if the method has them. It skips runs whose classes differ from the
// first run's.
func (v *view) confusion(f configs.Figure, _ results.Metric) (figures.Drawer, error) {
	out := figures.HeatMap{Title: f.Title, X: "predicted class", Y: "class", Value: "share of the class",
		Scale: [2]float64{0, 1}, WithoutValues: true}
	for _, facetRun := range v.mapped(f) {
		confusion, err := facetRun.run.Confusion()
		if err != nil {
			return nil, err
		}

		if confusion == nil || len(confusion.Classes) == 0 || out.RowNames != nil &&
			!slices.Equal(out.RowNames, confusion.Classes) {
			continue
		}

		if len(confusion.Classes) > mostConfused {
			v.note("figure confusion: %d classes are too many to be drawn; %s of the run folder has the counts",
				len(confusion.Classes), record.ConfusionFile)
			return nil, figures.ErrEmpty
		}

		out.RowNames, out.ColumnNames = confusion.Classes, confusion.Classes
		for _, evaluation := range []struct {
			name string
			of   *metrics.Matrix
		}{{"global", confusion.Global}, {"personal", confusion.Personal}} {
			if evaluation.of == nil || len(out.Panels) == mostMaps || len(confusion.Classes) > fewConfused &&
				len(out.Panels) == 2 {
				continue
			}
			rows := results.ConfusionRows(evaluation.of, len(confusion.Classes))
			for i, row := range rows {
				if row == nil { // no example of the class: hatched
					rows[i] = slices.Repeat([]float64{math.NaN()}, len(confusion.Classes))
				}
			}
			out.Panels = append(out.Panels, figures.HeatPanel{Title: joined(", ", facetRun.label, evaluation.name),
				Values: rows})
		}
	}

	return out, nil
}
