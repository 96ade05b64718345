package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/tools/lab/figures/embedding"
)

// TSNEPanel is one map of rows, such as the prompts of all clients.
type TSNEPanel struct {
	Title  string
	Rows   [][]float64 // [N][D]
	Groups []string    // nil, or the group of each row, such as its client's backbone
}

// TSNE maps rows to the plane and colours them by group: prompts of clients by backbone in FedAPPR's figure 1 (b) to
// (d). Its axes have no numbers, because only neighbourhoods have a meaning in such a map.
type TSNE struct {
	Title  string
	Panels []TSNEPanel
}

func (f TSNE) kind() (string, int) { return "t-SNE", len(f.Panels) }

func (f TSNE) draw() (*sheet, error) {
	sheet := &sheet{title: f.Title, width: 230, height: 210}
	if len(f.Panels) > 1 {
		sheet.width, sheet.height = 165, 155
	}

	var groups numbering
	for i, in := range f.Panels {
		points, err := embedding.TSNE(in.Rows)
		if err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}

		styles := make([]style, len(points))
		for j := range points {
			group := ""
			if in.Groups != nil {
				group = in.Groups[j]
			}
			styles[j] = groupStyle(groups.of(group))
		}

		p := mapPlot(sheet.width, sheet.height, points)
		p.HideAxes()
		p.Add(plotted(func(c draw.Canvas, p *plot.Plot) {
			c.SetLineStyle(draw.LineStyle{Color: grey, Width: 0.6})
			c.Stroke(c.Rectangle.Path())
			for j, at := range points {
				stamp(&c, styles[j].glyph(cloudRadius(len(points))), place(c, p, at))
			}
		}))

		sheet.add(p, in.Title)
	}

	if groups.named() {
		sheet.legend = groups.legend(func(label string, look style) entry { return glyphEntry(label, look.glyph(3)) })
	}

	return sheet, nil
}
