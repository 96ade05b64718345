package figures

import (
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// scatter is a set of points in the plane, each with a style.
type scatter struct {
	x, y   []float64
	styles []style
	radius vg.Length
}

func (s *scatter) add(x, y float64, l style) {
	s.x, s.y, s.styles = append(s.x, x), append(s.y, y), append(s.styles, l)
}

// Plot implements plot.Plotter.
func (s scatter) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for i := range s.x {
		stamp(&c, s.styles[i].glyph(s.radius), vg.Point{X: toX(s.x[i]), Y: toY(s.y[i])})
	}
}

// equalScales widens one of a plot's ranges so that x and y have equal units.
func equalScales(p *plot.Plot, width, height vg.Length) {
	x, y := p.X.Max-p.X.Min, p.Y.Max-p.Y.Min
	want := float64(width / height)
	if x < y*want {
		p.X.Min, p.X.Max = p.X.Min-(y*want-x)/2, p.X.Max+(y*want-x)/2
	} else {
		p.Y.Min, p.Y.Max = p.Y.Min-(x/want-y)/2, p.Y.Max+(x/want-y)/2
	}
}

// frame is a thin rectangle around the data area, for axes without ticks.
type frame struct{}

// Plot implements plot.Plotter.
func (frame) Plot(c draw.Canvas, _ *plot.Plot) {
	c.SetLineStyle(draw.LineStyle{Color: grey, Width: 0.6})
	c.Stroke(c.Rectangle.Path())
}

// cloudRadius returns the radius of the points in a cloud: smaller for more points.
func cloudRadius(n int) vg.Length {
	switch {
	case n <= 120:
		return 2.8
	case n <= 500:
		return 2
	}
	return 1.4
}

// trimmed formats a number with at most the given number of decimals and no trailing zeros.
func trimmed(v float64, places int) string {
	text := number(v, places)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
