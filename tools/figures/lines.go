package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Axis says what an axis shows.
type Axis struct {
	Label  string
	Within [2]float64 // what values can be, such as {0, 100} for percent: the axis and bands end there; equal numbers for no bound
	Log    bool       // logarithmic; values that are not positive are left out
	Names  []string   // of the values 0, 1, 2 and on, for an axis without numbers
}

// Line is a series of points. Values that are not numbers break the line.
type Line struct {
	Label  string
	X, Y   []float64 // of one length, X growing
	Spread []float64 // nil, or of the same length: half the height of the band or of the error bar, such as a standard deviation over seeds
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

// maxPoints bounds the points of a line that are drawn.
const maxPoints = 100_000

func (p *LinePanel) check() error {
	if len(p.X.Names) > maxCells {
		return fmt.Errorf("%d names of x values: give at most %d", len(p.X.Names), maxCells)
	}
	for _, l := range p.Lines {
		switch {
		case len(l.X) != len(l.Y):
			return fmt.Errorf("line %q has %d x and %d y values: give as many of one as of the other", clean(l.Label), len(l.X), len(l.Y))
		case l.Spread != nil && len(l.Spread) != len(l.Y):
			return fmt.Errorf("line %q has %d values and %d spreads: give one for each, or none", clean(l.Label), len(l.Y), len(l.Spread))
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

// spread is that of a point, 0 if unknown.
func (l *Line) spread(i int) float64 {
	if l.Spread == nil || !usable(l.Spread[i]) {
		return 0
	}
	return max(0, l.Spread[i])
}

// shown tells whether a point can be drawn on the panel's axes.
func (p *LinePanel) shown(l *Line, i int) bool {
	return usable(l.X[i]) && usable(l.Y[i]) && !(p.X.Log && !onLog(l.X[i])) && !(p.Y.Log && !onLog(l.Y[i]))
}

// spans are the ranges of the panel's points, bands and reference lines.
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

// bounded moves the end of a band around a value into what values can be, but not across the value.
func (a Axis) bounded(value, end float64) float64 {
	if a.Within[0] < a.Within[1] {
		return min(max(a.Within[1], value), max(min(a.Within[0], value), end))
	}
	return end
}

// apply gives a plot's axis a range, its label and its ticks; n is about how many.
func (a Axis) apply(to *plot.Axis, s span, n int) {
	to.Label.Text = a.Label
	to.Min, to.Max = s.low, s.high
	if a.Log {
		to.Scale, to.Tick.Marker = plot.LogScale{}, logTicks{}
		return
	}
	to.Tick.Marker = evenTicks{n: n}
}

// gridLines are pale lines at the labelled ticks, behind everything; x only if asked for.
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

// linePanels lays out panels of lines: each line is drawn by plotter.
func linePanels(title string, columns int, sameY bool, panels []LinePanel, plotter func(*LinePanel, *Line, int, int, look) plot.Plotter) (*Figure, error) {
	s := sheet{title: title, columns: columns}
	s.width, s.height = panelSize(len(panels))
	var order, lines numbering
	any := false
	common := map[bool]span{false: noSpan(), true: noSpan()} // of y, over panels that are logarithmic or not
	for i := range panels {
		if err := panels[i].check(); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}
		_, y, _ := panels[i].spans()
		all := common[panels[i].Y.Log]
		all.add(y.low, y.high)
		common[panels[i].Y.Log] = all
	}
	for i := range panels {
		in := &panels[i]
		x, y, values := in.spans()
		any = any || !x.empty()
		if sameY {
			y = common[in.Y.Log]
		}
		p := newPlot()
		in.Y.apply(&p.Y, y.padded(0.04, in.Y.Within, in.Y.Log), 5)
		if names := in.X.Names; len(names) > 0 {
			in.X.apply(&p.X, span{-0.4, float64(len(names)) - 0.6}, 0)
			nameX(&p.X, names, s.width)
			p.X.Scale = plot.LinearScale{}
		} else {
			in.X.apply(&p.X, x.padded(0.03, in.X.Within, in.X.Log), 6)
			if t := dataTicks(values); t != nil {
				p.X.Tick.Marker = roomy(p, t, s.width)
			}
		}
		p.Add(gridLines{x: len(in.X.Names) == 0, y: true}, referenceLines(in.References))
		for j := range in.Lines {
			p.Add(plotter(in, &in.Lines[j], j, len(in.Lines), lookOf(order.of(in.Lines[j].Label))))
		}
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	if !any {
		return nil, fmt.Errorf("no line has a point: every value is missing or not a number")
	}
	for _, in := range panels {
		for j, r := range in.References {
			if lines.of(r.Label) == len(s.legend) { // first met
				s.legend = append(s.legend, lineEntry(r.Label, referenceStyle(j), draw.GlyphStyle{}))
			}
		}
	}
	var own legend
	for i, label := range order.labels {
		if label != "" || len(order.labels) > 1 {
			own = append(own, lineEntry(label, lookOf(i).line(1.4), lookOf(i).glyph(2.6)))
		}
	}
	s.legend = append(own, s.legend...)
	return s.figure()
}

// panelSize is the size of a data area among n.
func panelSize(n int) (width, height vg.Length) {
	switch {
	case n <= 1:
		return 290, 190
	case n == 2:
		return 220, 160
	case n <= 4:
		return 170, 130
	}
	return 140, 112
}

// roomy leaves out labels of given ticks that would overlap the one before.
func roomy(p *plot.Plot, t plot.Ticker, width vg.Length) plot.Ticker {
	var out plot.ConstantTicks
	last := -width
	for _, m := range t.Ticks(p.X.Min, p.X.Max) {
		if m.IsMinor() {
			out = append(out, m)
			continue
		}
		half := p.X.Tick.Label.Width(m.Label) / 2
		at := width * vg.Length(p.X.Norm(m.Value))
		if at-half < last+3 {
			m.Label = ""
		} else {
			last = at + half
		}
		out = append(out, m)
	}
	return out
}
