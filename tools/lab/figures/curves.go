package figures

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Curves are lines over rounds with a band for their spread, as in FedPHA's figure 6, SDFed's figure 3 and FedAPPR's
// figures 1 (a) and S1.
type Curves struct {
	Title   string
	Columns int  // of panels; 0: automatic
	SameY   bool // all panels have one range of y
	Colours Colours
	Panels  []LinePanel
}

// Draw implements Drawer.
func (f Curves) Draw() (*Figure, error) {
	return drawn("curves", len(f.Panels), func() (*Figure, error) {
		return linePanels(f.Title, f.Columns, f.SameY, f.Panels, f.Colours, newBand, newCurve)
	})
}

// curve is one line with its band, and markers at some of its points.
type curve struct {
	in     *LinePanel
	line   *Line
	number int // among the panel's lines
	of     int
	style  style
}

func newCurve(c curve) plot.Plotter { return c }

// pieces returns the runs of points without a gap.
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

// fewBands is the largest number of lines in a panel with bands. More bands would hide each other.
const fewBands = 4

// band is the spread around a line.
type band struct{ curve }

func newBand(c curve) plot.Plotter { return band{c} }

// Plot implements plot.Plotter.
func (v band) Plot(c draw.Canvas, p *plot.Plot) {
	if v.of > fewBands {
		return
	}
	toX, toY := p.Transforms(&c)
	end := func(y float64) vg.Length { // inside the panel
		return toY(min(p.Y.Max, max(p.Y.Min, y)))
	}
	for _, piece := range v.pieces() {
		low, high := make([]vg.Point, len(piece)), make([]vg.Point, len(piece))
		wide := false
		for j, i := range piece {
			x, y, s := toX(v.line.X[i]), v.line.Y[i], v.line.spread(i)
			low[len(piece)-1-j] = vg.Point{X: x, Y: end(v.in.Y.bounded(y, y-s))}
			high[j] = vg.Point{X: x, Y: end(v.in.Y.bounded(y, y+s))}
			wide = wide || s > 0
		}
		if wide && len(piece) > 1 {
			c.FillPolygon(faint(v.style.color, 46), append(high, low...))
		}
	}
}

// Plot implements plot.Plotter.
func (v curve) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	// Each line has about eight markers, at places of its own, so that overlapping lines remain visible.
	every := max(1, len(v.line.X)/8)
	first := 0
	if every > 1 {
		first = every * v.number / max(1, v.of)
	}
	for _, piece := range v.pieces() {
		points := make([]vg.Point, len(piece))
		for j, i := range piece {
			points[j] = vg.Point{X: toX(v.line.X[i]), Y: toY(v.line.Y[i])}
		}
		c.StrokeLines(v.style.line(1.4), points)
		for j, i := range piece {
			if i%every == first || len(piece) == 1 {
				stamp(&c, v.style.glyph(2.2), points[j])
			}
		}
	}
}

// Sensitivity shows a value against the settings of a sweep, with error bars and reference lines: shots (FedPHA's
// figure 3, SDFed's figure 4), hyper-parameters, also on a logarithmic axis (FedAPPR's figures 4 and S2), numbers of
// clients, participation and rounds (pFedDC's figure 3). Each panel has its own x axis.
type Sensitivity struct {
	Title   string
	Columns int  // of panels; 0: automatic
	SameY   bool // all panels have one range of y
	Colours Colours
	Panels  []LinePanel
}

// Draw implements Drawer.
func (f Sensitivity) Draw() (*Figure, error) {
	return drawn("sensitivity", len(f.Panels), func() (*Figure, error) {
		return linePanels(f.Title, f.Columns, f.SameY, f.Panels, f.Colours, newWhiskers)
	})
}

// whiskers are the points of a line with error bars. Lines with error bars are shifted a little sideways to separate
// the bars.
type whiskers struct{ curve }

func newWhiskers(c curve) plot.Plotter { return whiskers{c} }

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
		c.StrokeLines(v.style.line(1.3), points)
		bar := draw.LineStyle{Color: v.style.color, Width: 0.9}
		for j, i := range piece {
			if s := v.line.spread(i); s > 0 {
				low := toY(max(p.Y.Min, v.in.Y.bounded(v.line.Y[i], v.line.Y[i]-s)))
				high := toY(min(p.Y.Max, v.in.Y.bounded(v.line.Y[i], v.line.Y[i]+s)))
				x := points[j].X
				c.StrokeLine2(bar, x, low, x, high)
				c.StrokeLine2(bar, x-2, low, x+2, low)
				c.StrokeLine2(bar, x-2, high, x+2, high)
			}
			stamp(&c, v.style.glyph(2.6), points[j])
		}
	}
}
