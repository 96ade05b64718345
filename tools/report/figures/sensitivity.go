package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sensitivity shows a value against the settings of a sweep, with error bars and reference lines: shots (FedPHA's
// figure 3, SDFed's figure 4), hyper-parameters, also logarithmic (FedAPPR's figures 4 and S2), numbers of clients,
// participation and rounds (pFedDC's figure 3). Each panel has an x axis of its own.
type Sensitivity struct {
	Title   string
	Columns int  // of panels; 0: chosen
	SameY   bool // all panels have one range of y
	Panels  []LinePanel
}

// Draw implements Drawer.
func (f Sensitivity) Draw() (*Figure, error) {
	fig, err := linePanels(f.Title, f.Columns, f.SameY, f.Panels, newWhiskers)
	if err != nil {
		return nil, fmt.Errorf("sensitivity: %w", err)
	}
	return fig, nil
}

// whiskers are the points of a line with error bars. Lines with error bars stand a little aside of each other, so that
// the bars can be told apart.
type whiskers struct{ curve }

func newWhiskers(in *LinePanel, l *Line, number, of int, look look) plot.Plotter {
	return whiskers{curve{in, l, number, of, look}}
}

// Plot implements plot.Plotter.
func (v whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	aside := vg.Length(0)
	if v.line.Spread != nil {
		aside = 1.3 * (vg.Length(v.number) - vg.Length(v.of-1)/2)
	}
	for _, piece := range v.pieces() {
		points := make([]vg.Point, len(piece))
		for j, i := range piece {
			points[j] = vg.Point{X: toX(v.line.X[i]) + aside, Y: toY(v.line.Y[i])}
		}
		c.StrokeLines(v.look.line(1.3), points)
		bar := draw.LineStyle{Color: v.look.color, Width: 0.9}
		for j, i := range piece {
			if s := v.line.spread(i); s > 0 {
				low := toY(max(p.Y.Min, v.in.Y.bounded(v.line.Y[i], v.line.Y[i]-s)))
				high := toY(min(p.Y.Max, v.in.Y.bounded(v.line.Y[i], v.line.Y[i]+s)))
				x := points[j].X
				c.StrokeLine2(bar, x, low, x, high)
				c.StrokeLine2(bar, x-2, low, x+2, low)
				c.StrokeLine2(bar, x-2, high, x+2, high)
			}
			stamp(&c, v.look.glyph(2.6), points[j])
		}
	}
}
