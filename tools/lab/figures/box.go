package figures

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/tools/lab/stats"
)

// Sample is the group of values of one box.
type Sample struct {
	Label  string
	Group  string // boxes of one group share a colour, which the legend explains; may be empty
	Values []float64
}

// BoxPanel is one set of axes with boxes.
type BoxPanel struct {
	Title string
	X     string
	Boxes []Sample
}

// Box is a box plot: a box from quartile to quartile with the median, whiskers and outliers, as in FiveNumbers. In
// FedPHA's figure 5 and SDFed's figure 6 a panel is a client and a box is one of the client's prompt lengths.
type Box struct {
	Title   string
	Columns int // of panels; 0: automatic
	Y       Axis
	SameY   bool    // all panels have one range of y
	Colours Colours // of labels, for boxes without groups
	Panels  []BoxPanel
}

// maxBoxes is the largest number of boxes in a panel.
const maxBoxes = 200

// Draw implements Drawer.
func (f Box) Draw() (*Figure, error) {
	return drawn("box", len(f.Panels), f.draw)
}

func (f Box) draw() (*Figure, error) {
	s := sheet{title: f.Title, columns: f.Columns}
	s.width, s.height = panelSize(len(f.Panels))
	most := 1
	for _, p := range f.Panels {
		most = max(most, len(p.Boxes))
	}
	s.width = max(s.width, 9*vg.Length(most))
	var groups numbering
	all, spans := noSpan(), make([]span, len(f.Panels))
	for i, in := range f.Panels {
		if len(in.Boxes) == 0 || len(in.Boxes) > maxBoxes {
			return nil, fmt.Errorf("panel %d has %d boxes: give 1 to %d", i+1, len(in.Boxes), maxBoxes)
		}
		spans[i] = noSpan()
		for _, b := range in.Boxes {
			for _, v := range b.Values {
				if !f.Y.Log || onLog(v) {
					spans[i].add(v)
					all.add(v)
				}
			}
		}
	}
	if all.empty() {
		return nil, fmt.Errorf("no box has a value: every one is missing or not a number")
	}
	for i, in := range f.Panels {
		p := newPlot()
		y := spans[i]
		if f.SameY {
			y = all
		}
		f.Y.apply(&p.Y, y.padded(0.05, f.Y.Bounds, f.Y.Log), 5)
		p.X.Label.Text = in.X
		p.X.Min, p.X.Max = -0.6, float64(len(in.Boxes))-0.4
		names := make([]string, len(in.Boxes))
		drawn := boxes{wide: min(16, 0.62*s.width/vg.Length(len(in.Boxes)))}
		for j, b := range in.Boxes {
			names[j] = b.Label
			values := b.Values
			if f.Y.Log {
				values = positive(values)
			}
			five, ok := NewFiveNumbers(values)
			style := seriesStyle(groups.of(b.Group))
			if b.Group == "" {
				style = f.Colours.style(b.Label, 0)
			}
			drawn.list = append(drawn.list, oneBox{five, ok, style.color})
		}
		nameX(&p.X, names, s.width)
		p.Add(gridLines{y: true}, drawn)
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	if len(groups.labels) > 1 {
		for i, label := range groups.labels {
			c := seriesStyle(i).color
			s.legend = append(s.legend, patchEntry(label, faint(c, 90), draw.LineStyle{Color: c, Width: 0.8}))
		}
	}
	return s.figure()
}

func positive(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if onLog(v) {
			out = append(out, v)
		}
	}
	return out
}

type oneBox struct {
	FiveNumbers
	ok     bool
	colour color.NRGBA
}

// boxes draws boxes at 0, 1, 2 and so on.
type boxes struct {
	list []oneBox
	wide vg.Length
}

// Plot implements plot.Plotter.
func (b boxes) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for i, one := range b.list {
		if !one.ok {
			continue
		}
		x, half := toX(float64(i)), b.wide/2
		line := draw.LineStyle{Color: one.colour, Width: 0.8}
		for _, whisker := range [][2]float64{{one.Q1, one.Low}, {one.Q3, one.High}} {
			c.StrokeLine2(line, x, toY(whisker[0]), x, toY(whisker[1]))
			c.StrokeLine2(line, x-half/2, toY(whisker[1]), x+half/2, toY(whisker[1]))
		}
		body := vg.Rectangle{Min: vg.Point{X: x - half, Y: toY(one.Q1)}, Max: vg.Point{X: x + half, Y: toY(one.Q3)}}
		c.SetColor(color.White)
		c.Fill(body.Path())
		c.SetColor(faint(one.colour, 90))
		c.Fill(body.Path())
		c.SetLineStyle(line)
		c.Stroke(body.Path())
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: 1.4}, x-half, toY(one.Median), x+half, toY(one.Median))
		for _, v := range one.Outliers {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: one.colour, Radius: 1.6, Shape: draw.RingGlyph{}}, vg.Point{X: x,
				Y: toY(v)})
		}
	}
}

// FiveNumbers are the numbers of a box plot with matplotlib's defaults: quartiles by linear interpolation, whiskers to
// the last value within 1.5 times the interquartile range beyond the quartiles, and outliers outside the whiskers.
type FiveNumbers struct {
	Low, Q1, Median, Q3, High float64
	Outliers                  []float64 // ascending
}

// NewFiveNumbers computes the five numbers of the finite values. It returns false without any.
func NewFiveNumbers(values []float64) (FiveNumbers, bool) {
	var sorted []float64
	for _, v := range values {
		if usable(v) {
			sorted = append(sorted, v)
		}
	}
	if len(sorted) == 0 {
		return FiveNumbers{}, false
	}
	slices.Sort(sorted)
	f := FiveNumbers{Q1: stats.Quantile(sorted, 0.25), Median: stats.Quantile(sorted, 0.5),
		Q3: stats.Quantile(sorted, 0.75)}
	reach := 1.5 * (f.Q3 - f.Q1)
	f.Low, f.High = f.Q1, f.Q3 // as in matplotlib, without a value between a quartile and its fence
	for _, v := range sorted {
		switch {
		case v < f.Q1-reach || v > f.Q3+reach:
			f.Outliers = append(f.Outliers, v)
		default:
			f.Low, f.High = min(f.Low, v), max(f.High, v)
		}
	}
	return f, true
}
