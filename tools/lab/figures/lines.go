package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// Axis describes an axis.
type Axis struct {
	Label string
	// Bounds is the range of possible values, such as {0, 100} for percent, at which the axis and bands end; equal
	// numbers mean no bound
	Bounds [2]float64
	Log    bool     // logarithmic; only positive values appear
	Names  []string // of the values 0, 1, 2 and so on, for an axis without numbers
	// Format formats measured values, which get round ticks. It is nil for chosen values; a few chosen values become
	// the ticks themselves.
	Format func(float64) string
}

// Line is a series of points. Values that are not numbers break the line.
type Line struct {
	Label string
	X, Y  []float64 // of equal length, X ascending
	// nil, or half the height of each point's band or error bar, such as a standard deviation over seeds; of equal
	// length
	Spread []float64
}

// Reference is a horizontal line.
type Reference struct {
	Label string
	Y     float64
}

// LinePanel is one set of axes with lines. Lines of one label look the same in all panels of a figure.
type LinePanel struct {
	Title      string
	X, Y       Axis
	Lines      []Line
	References []Reference
}

// maxPoints is the largest number of drawn points in a line.
const maxPoints = 100_000

func (p *LinePanel) check() error {
	if len(p.X.Names) > maxCells {
		return fmt.Errorf("%d names of x values: give at most %d", len(p.X.Names), maxCells)
	}
	for _, l := range p.Lines {
		switch {
		case len(l.X) != len(l.Y):
			return fmt.Errorf("line %q has %d x and %d y values: give as many of one as of the other", clean(l.Label),
				len(l.X), len(l.Y))
		case l.Spread != nil && len(l.Spread) != len(l.Y):
			return fmt.Errorf("line %q has %d values and %d spreads: give one for each, or none", clean(l.Label),
				len(l.Y), len(l.Spread))
		case len(l.X) > maxPoints:
			return fmt.Errorf("line %q has %d points: give at most %d", clean(l.Label), len(l.X), maxPoints)
		}
		for _, x := range l.X {
			if n := len(p.X.Names); n > 0 && (x < 0 || x > float64(n-1)) {
				return fmt.Errorf("line %q has x = %g, but there are names for 0 to %d only", clean(l.Label), x, n-1)
			}
		}
	}
	return nil
}

// spread returns the spread of a point, or 0 if unknown.
func (l *Line) spread(i int) float64 {
	if l.Spread == nil || !usable(l.Spread[i]) {
		return 0
	}
	return max(0, l.Spread[i])
}

// shown reports whether the panel's axes can show a point.
func (p *LinePanel) shown(l *Line, i int) bool {
	return usable(l.X[i]) && usable(l.Y[i]) && !(p.X.Log && !onLog(l.X[i])) && !(p.Y.Log && !onLog(l.Y[i]))
}

// spans returns the ranges of the panel's points, bands and reference lines.
func (p *LinePanel) spans() (x, y span, values []float64) {
	x, y = noSpan(), noSpan()
	for _, l := range p.Lines {
		for i := range l.X {
			if p.shown(&l, i) {
				x.add(l.X[i])
				y.add(l.Y[i])
				for _, end := range []float64{l.Y[i] - l.spread(i), l.Y[i] + l.spread(i)} {
					if !p.Y.Log || onLog(end) {
						y.add(p.Y.bounded(l.Y[i], end))
					}
				}
				values = append(values, l.X[i])
			}
		}
	}
	for _, r := range p.References {
		if !p.Y.Log || onLog(r.Y) {
			y.add(r.Y)
		}
	}
	return x, y, values
}

// bounded moves the end of a band around a value into the range of possible values, but not across the value.
func (a Axis) bounded(value, end float64) float64 {
	if a.Bounds[0] < a.Bounds[1] {
		return min(max(a.Bounds[1], value), max(min(a.Bounds[0], value), end))
	}
	return end
}

// apply sets the range, the label and about n ticks of a plot's axis.
func (a Axis) apply(to *plot.Axis, s span, n int) {
	to.Label.Text = a.Label
	to.Min, to.Max = s.low, s.high
	if a.Log {
		to.Scale, to.Tick.Marker = plot.LogScale{}, logTicks{a.Format}
		return
	}
	to.Tick.Marker = evenTicks{n, a.Format}
}

// gridLines are pale lines at the labelled ticks, behind everything; vertical ones only with x.
type gridLines struct{ x, y bool }

// Plot implements plot.Plotter.
func (g gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: pale, Width: 0.5}
	toX, toY := p.Transforms(&c)
	if g.x {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if x := toX(t.Value); !t.IsMinor() && c.ContainsX(x) {
				c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
			}
		}
	}
	if g.y {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			if y := toY(t.Value); !t.IsMinor() && c.ContainsY(y) {
				c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
			}
		}
	}
}

// referenceLines are dashed lines across the panel.
type referenceLines []Reference

func referenceStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: grey, Width: 1, Dashes: dashes[1+i%(len(dashes)-1)]}
}

// Plot implements plot.Plotter.
func (r referenceLines) Plot(c draw.Canvas, p *plot.Plot) {
	for i, line := range r {
		if usable(line.Y) && line.Y >= p.Y.Min && line.Y <= p.Y.Max {
			y := c.Y(p.Y.Norm(line.Y))
			c.StrokeLine2(referenceStyle(i), c.Min.X, y, c.Max.X, y)
		}
	}
}
