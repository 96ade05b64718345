package figures

import (
	"fmt"

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
	Title   string
	Columns int // of panels; 0: automatic
	Options embedding.Options
	Panels  []TSNEPanel
}

// Draw implements Drawer.
func (f TSNE) Draw() (*Figure, error) {
	return drawn("t-SNE", len(f.Panels), f.draw)
}

func (f TSNE) draw() (*Figure, error) {
	s := sheet{title: f.Title, columns: f.Columns, width: 230, height: 210}
	if len(f.Panels) > 1 {
		s.width, s.height = 165, 155
	}
	var groups numbering
	for i, in := range f.Panels {
		if in.Groups != nil && len(in.Groups) != len(in.Rows) {
			return nil, fmt.Errorf("panel %d: %d groups for %d rows", i+1, len(in.Groups), len(in.Rows))
		}
		m, err := embedding.TSNE(in.Rows, f.Options)
		if err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}
		x, y := noSpan(), noSpan()
		cloud := scatter{radius: cloudRadius(len(m.Points))}
		for j, pt := range m.Points {
			group := ""
			if in.Groups != nil {
				group = in.Groups[j]
			}
			x.add(pt[0])
			y.add(pt[1])
			cloud.add(pt[0], pt[1], seriesStyle(groups.of(group)))
		}
		p := newPlot()
		p.HideAxes()
		x, y = x.padded(0.06, [2]float64{}, false), y.padded(0.06, [2]float64{}, false)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = x.low, x.high, y.low, y.high
		equalScales(p, s.width, s.height)
		p.Add(frame{}, cloud)
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	if len(groups.labels) > 1 || len(groups.labels) == 1 && groups.labels[0] != "" {
		for i, label := range groups.labels {
			s.legend = append(s.legend, glyphEntry(label, seriesStyle(i).glyph(3)))
		}
	}
	return s.figure()
}
