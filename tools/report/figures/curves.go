package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Curves are lines over rounds with a band of their spread, as in FedPHA's figure 6, SDFed's figure 3 and FedAPPR's
// figures 1 (a) and S1.
type Curves struct {
	Title   string
	Columns int  // of panels; 0: chosen
	SameY   bool // all panels have one range of y
	Panels  []LinePanel
}

// Draw implements Drawer.
func (f Curves) Draw() (*Figure, error) {
	fig, err := linePanels(f.Title, f.Columns, f.SameY, f.Panels, newCurve)
	if err != nil {
		return nil, fmt.Errorf("curves: %w", err)
	}
	return fig, nil
}

// curve is one line with its band, and markers at some of its points.
type curve struct {
	in     *LinePanel
	line   *Line
	number int // among the panel's lines
	of     int
	look   look
}

func newCurve(in *LinePanel, l *Line, number, of int, look look) plot.Plotter {
	return curve{in, l, number, of, look}
}

// pieces are the runs of points without a gap.
func (v curve) pieces() [][]int {
	var out [][]int
	open := false
	for i := range v.line.X {
		if !v.in.shown(v.line, i) {
			open = false
			continue
		}
		if !open {
			out, open = append(out, nil), true
		}
		out[len(out)-1] = append(out[len(out)-1], i)
	}
	return out
}

// Plot implements plot.Plotter.
func (v curve) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	end := func(y float64) vg.Length { // of a band: inside the panel
		return toY(min(p.Y.Max, max(p.Y.Min, y)))
	}
	// About eight markers, at other places for each line, so that lines on top of each other show theirs.
	every := max(1, len(v.line.X)/8)
	first := 0
	if every > 1 {
		first = every * v.number / max(1, v.of)
	}
	for _, piece := range v.pieces() {
		points := make([]vg.Point, len(piece))
		low, high := make([]vg.Point, len(piece)), make([]vg.Point, len(piece))
		wide := false
		for j, i := range piece {
			x, s := toX(v.line.X[i]), v.line.spread(i)
			points[j] = vg.Point{X: x, Y: toY(v.line.Y[i])}
			low[len(piece)-1-j] = vg.Point{X: x, Y: end(v.in.Y.bounded(v.line.Y[i], v.line.Y[i]-s))}
			high[j] = vg.Point{X: x, Y: end(v.in.Y.bounded(v.line.Y[i], v.line.Y[i]+s))}
			wide = wide || s > 0
		}
		if wide && len(piece) > 1 {
			c.FillPolygon(faint(v.look.color, 46), append(high, low...))
		}
		c.StrokeLines(v.look.line(1.4), points)
		for j, i := range piece {
			if i%every == first || len(piece) == 1 {
				stamp(&c, v.look.glyph(2.2), points[j])
			}
		}
	}
}
