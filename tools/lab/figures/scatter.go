package figures

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotted is a plot.Plotter.
type plotted func(c draw.Canvas, p *plot.Plot)

// Plot implements plot.Plotter.
func (f plotted) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

// mapPlot returns a plot around points of the plane, with equal units on x and y.
func mapPlot(width, height vg.Length, points ...[][2]float64) *plot.Plot {
	xSpan, ySpan := noSpan(), noSpan()
	for _, list := range points {
		for _, at := range list {
			xSpan.add(at[0])
			ySpan.add(at[1])
		}
	}

	xSpan, ySpan = xSpan.padded(0.06, Axis{}), ySpan.padded(0.06, Axis{})
	want := float64(width / height)
	moreX, moreY := max(0, (ySpan.high-ySpan.low)*want-(xSpan.high-xSpan.low))/2, max(0,
		(xSpan.high-xSpan.low)/want-(ySpan.high-ySpan.low))/2
	p := newPlot()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = xSpan.low-moreX, xSpan.high+moreX, ySpan.low-moreY, ySpan.high+moreY
	return p
}

// place returns the place of a point of the plane.
func place(c draw.Canvas, p *plot.Plot, at [2]float64) vg.Point {
	toX, toY := p.Transforms(&c)
	return vg.Point{X: toX(at[0]), Y: toY(at[1])}
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
