package figures

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Axis describes an axis.
type Axis struct {
	Label string
	// Bounds is the range of possible values, such as {0, 100} for percent, at which the axis and bands end; equal
	// numbers mean no bound
	Bounds [2]float64
	Log    bool     // logarithmic; only positive values appear
	Whole  bool     // values are whole numbers, and so are the ticks
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

// Reference is a horizontal dashed line in every panel of a figure.
type Reference struct {
	Label string
	Y     float64
}

// LinePanel is one set of axes with lines. Lines of one label look the same in all panels of a figure.
type LinePanel struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// lineFigure is a figure of lines.
type lineFigure struct {
	Title     string
	Colours   Colours
	Panels    []LinePanel
	Reference *Reference // may be nil
}

// Curves are lines over rounds with a band for their spread, as in FedPHA's figure 6, SDFed's figure 3 and FedAPPR's
// figures 1 (a) and S1.
type Curves lineFigure

// Sensitivity shows a value against the settings of a sweep, with error bars: shots (FedPHA's figure 3, SDFed's figure
// 4), hyper-parameters, also on a logarithmic axis (FedAPPR's figures 4 and S2), numbers of clients, participation and
// rounds (pFedDC's figure 3). Each panel has its own x axis.
type Sensitivity lineFigure

func (f Curves) kind() (string, int)      { return "curves", len(f.Panels) }
func (f Curves) draw() (*sheet, error)    { return lineFigure(f).lines(curve.band, curve.markedLine) }
func (f Sensitivity) kind() (string, int) { return "sensitivity", len(f.Panels) }

func (f Sensitivity) draw() (*sheet, error) { return lineFigure(f).lines(curve.whiskers) }

// maxPoints is the largest number of drawn points in a line.
const maxPoints = 100_000

func (p *LinePanel) check() error {
	if len(p.X.Names) > maxCells {
		return fmt.Errorf("%d names of x values: give at most %d", len(p.X.Names), maxCells)
	}

	for _, line := range p.Lines {
		if len(line.X) > maxPoints {
			return fmt.Errorf("line %q has %d points: give at most %d", clean(line.Label), len(line.X), maxPoints)
		}
	}

	return nil
}

// shows reports whether the axis can show a value.
func (a Axis) shows(v float64) bool { return usable(v) && !(a.Log && !onLog(v)) }

// ends returns the lower and the upper end of a point's band, inside the possible values, and whether it has one.
func (l *Line) ends(i int, y Axis) (low, high float64, wide bool) {
	v := l.Y[i]
	if l.Spread == nil || !usable(l.Spread[i]) || l.Spread[i] <= 0 {
		return v, v, false
	}

	low, high = v-l.Spread[i], v+l.Spread[i]
	if y.Bounds[0] < y.Bounds[1] {
		low, high = max(low, min(y.Bounds[0], v)), min(high, max(y.Bounds[1], v))
	}

	return low, high, true
}

// spans returns the ranges of the panel's points and bands.
func (p *LinePanel) spans() (xSpan, ySpan span, values []float64) {
	xSpan, ySpan = noSpan(), noSpan()
	for _, l := range p.Lines {
		for i := range l.X {
			if p.X.shows(l.X[i]) && p.Y.shows(l.Y[i]) {
				low, high, _ := l.ends(i, p.Y)
				xSpan.add(l.X[i])
				ySpan.addOn(p.Y, l.Y[i], low, high)
				values = append(values, l.X[i])
			}
		}
	}

	return xSpan, ySpan, values
}

// apply sets the range, the label and about n ticks of a plot's axis.
func (a Axis) apply(to *plot.Axis, s span, n int) {
	to.Label.Text = a.Label
	to.Min, to.Max = s.low, s.high
	if a.Log {
		to.Scale, to.Tick.Marker = plot.LogScale{}, logTicks{a.Format}
		return
	}
	to.Tick.Marker = evenTicks{n, a.Format, a.Whole}
}

// gridLines are pale lines at the labelled ticks, behind everything; vertical ones only with x.
func gridLines(x, y bool) *plotter.Grid {
	g := &plotter.Grid{}
	style := draw.LineStyle{Color: pale, Width: 0.5}
	if x {
		g.Vertical = style
	}

	if y {
		g.Horizontal = style
	}

	return g
}

var referenceStyle = draw.LineStyle{Color: grey, Width: 1, Dashes: dashes[1]}

// lines lays out panels of lines. The last mark of a line draws the line itself. Drawings of the other marks lie under
// all lines.
func (f lineFigure) lines(marks ...func(curve, draw.Canvas, *plot.Plot)) (*sheet, error) {
	sheet := &sheet{title: f.Title}
	sheet.width, sheet.height = panelSize(len(f.Panels))
	var order numbering
	any := false
	for i := range f.Panels {
		in := &f.Panels[i]
		if err := in.check(); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}

		x, y, values := in.spans()
		any = any || !x.empty()
		if r := f.Reference; r != nil {
			y.addOn(in.Y, r.Y)
		}

		chart := newPlot()
		in.Y.apply(&chart.Y, y.padded(0.04, in.Y), 5)
		if names := in.X.Names; len(names) > 0 {
			Axis{Label: in.X.Label}.apply(&chart.X, span{-0.4, float64(len(names)) - 0.6}, 0)
			nameX(&chart.X, names, sheet.width)
		} else {
			in.X.apply(&chart.X, x.padded(0.03, in.X), 6)
			if t := dataTicks(values); in.X.Format != nil {
				chart.X.Tick.Marker = roomy(chart, chart.X.Tick.Marker, sheet.width)
			} else if t != nil {
				chart.X.Tick.Marker = roomy(chart, t, sheet.width)
			}
		}

		chart.Add(gridLines(len(in.X.Names) == 0, true))
		if r := f.Reference; r != nil {
			chart.Add(plotted(func(c draw.Canvas, p *plot.Plot) {
				if r.Y >= p.Y.Min && r.Y <= p.Y.Max {
					c.StrokeLine2(referenceStyle, c.Min.X, c.Y(p.Y.Norm(r.Y)), c.Max.X, c.Y(p.Y.Norm(r.Y)))
				}
			}))
		}

		for _, mark := range marks {
			for j := range in.Lines {
				l := &in.Lines[j]
				v := curve{in, l, j, len(in.Lines), f.Colours.style(l.Label, order.of(l.Label))}
				chart.Add(plotted(func(c draw.Canvas, p *plot.Plot) { mark(v, c, p) }))
			}
		}

		sheet.add(chart, in.Title)
	}

	if !any {
		return nil, fmt.Errorf("no line has a point: every value is missing or not a number")
	}

	for i, label := range order {
		if label != "" || len(order) > 1 {
			l := f.Colours.style(label, i)
			sheet.legend = append(sheet.legend, lineEntry(label, l.line(1.4), l.glyph(2.6)))
		}
	}

	if r := f.Reference; r != nil {
		sheet.legend = append(sheet.legend, lineEntry(r.Label, referenceStyle, draw.GlyphStyle{}))
	}

	return sheet, nil
}

// panelSize returns the size of a data area among n.
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

// curve is one line of a panel.
type curve struct {
	in     *LinePanel
	line   *Line
	number int // among the panel's lines
	total  int
	style  style
}

// pieces calls f with the indices and the places of each run of points without a gap.
func (v curve) pieces(c draw.Canvas, p *plot.Plot, each func(index []int, at []vg.Point)) {
	toX, toY := p.Transforms(&c)
	var index []int
	var at []vg.Point
	for i := range v.line.X {
		if v.in.X.shows(v.line.X[i]) && v.in.Y.shows(v.line.Y[i]) {
			index, at = append(index, i), append(at, vg.Point{X: toX(v.line.X[i]), Y: toY(v.line.Y[i])})
		} else if index != nil {
			each(index, at)
			index, at = nil, nil
		}
	}

	if index != nil {
		each(index, at)
	}
}

// ends returns the places of the ends of a point's band, inside the panel, and whether it has one.
func (v curve) ends(i int, c draw.Canvas, p *plot.Plot) (low, high vg.Length, wide bool) {
	a, b, wide := v.line.ends(i, v.in.Y)
	_, toY := p.Transforms(&c)
	return toY(max(p.Y.Min, a)), toY(min(p.Y.Max, b)), wide
}

// column is half the width of a line, so that strokes through neighbouring columns leave no gap.
const column vg.Length = 0.7

// visible returns a path that looks the same with at most four points in a column: the first, the lowest, the highest
// and the last. The time to draw a path that goes up and down grows with the square of its points.
func visible(path []vg.Point) (out []vg.Point) {
	columnOf := func(p vg.Point) float64 { return math.Floor(float64(p.X / column)) }
	for len(path) > 0 {
		n, low, high := 1, 0, 0
		for ; n < len(path) && columnOf(path[n]) == columnOf(path[0]); n++ {
			if path[n].Y < path[low].Y {
				low = n
			}
			if path[n].Y > path[high].Y {
				high = n
			}
		}

		if n <= 4 {
			out = append(out, path[:n]...)
		} else {
			for _, i := range slices.Compact([]int{0, min(low, high), max(low, high), n - 1}) {
				out = append(out, path[i])
			}
		}

		path = path[n:]
	}

	return out
}

// fewBands is the largest number of lines in a panel with bands. More bands would hide each other, so more lines have
// error bars at their markers.
const fewBands = 4

// band fills the spread around a line.
func (v curve) band(canvas draw.Canvas, p *plot.Plot) {
	if v.total > fewBands {
		return
	}

	v.pieces(canvas, p, func(index []int, at []vg.Point) {
		upper, lower, any := slices.Clone(at), slices.Clone(at), false
		for j, i := range index {
			low, high, wide := v.ends(i, canvas, p)
			upper[j].Y, lower[j].Y, any = high, low, any || wide
		}
		if any && len(at) > 1 {
			lower = visible(lower)
			slices.Reverse(lower)
			canvas.FillPolygon(faint(v.style.color, 46), append(visible(upper), lower...))
		}
	})
}

// markedLine draws a line with markers at some of its points.
func (v curve) markedLine(canvas draw.Canvas, chart *plot.Plot) {
	// Each line has about eight markers, at places of its own, so that overlapping lines remain visible.
	every := max(1, len(v.line.X)/8)
	first := 0
	if every > 1 {
		first = every * v.number / max(1, v.total)
	}

	v.pieces(canvas, chart, func(index []int, at []vg.Point) {
		canvas.StrokeLines(v.style.line(1.4), visible(at))
		for j, i := range index {
			if i%every == first || len(at) == 1 {
				if v.total > fewBands {
					v.bar(i, at[j].X, canvas, chart)
				}
				stamp(&canvas, v.style.glyph(2.2), at[j])
			}
		}
	})
}

// whiskers draws a line with a marker and an error bar at every point. Lines with error bars are shifted a little
// sideways to separate the bars.
func (v curve) whiskers(canvas draw.Canvas, chart *plot.Plot) {
	aside := vg.Length(0)
	if v.line.Spread != nil {
		aside = 1.3 * (vg.Length(v.number) - vg.Length(v.total-1)/2)
	}

	v.pieces(canvas, chart, func(index []int, at []vg.Point) {
		for j := range at {
			at[j].X += aside
		}
		canvas.StrokeLines(v.style.line(1.3), visible(at))
		for j, i := range index {
			v.bar(i, at[j].X, canvas, chart)
			stamp(&canvas, v.style.glyph(2.6), at[j])
		}
	})
}

// bar draws the error bar of a point, if the point has a spread.
func (v curve) bar(i int, x vg.Length, c draw.Canvas, p *plot.Plot) {
	if low, high, wide := v.ends(i, c, p); wide {
		style := draw.LineStyle{Color: v.style.color, Width: 0.9}
		c.StrokeLine2(style, x, low, x, high)
		c.StrokeLine2(style, x-2, low, x+2, low)
		c.StrokeLine2(style, x-2, high, x+2, high)
	}
}
