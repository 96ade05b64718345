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
	Group  string // boxes of one group share a grey, which the legend explains; may be empty
	Values []float64
}

// BoxPanel is one set of axes with boxes.
type BoxPanel struct {
	Title string
	X     string
	Boxes []Sample
}

// Box is a box plot: a box from quartile to quartile with the median, whiskers and outliers, as in FiveNumbers. In
// FedPHA's figure 5 and SDFed's figure 6 a panel is a client and a box is one of the client's prompt lengths. All
// panels have one range of y.
type Box struct {
	Title   string
	Y       Axis
	Colours Colours // of labels; boxes of groups have them as outlines
	Panels  []BoxPanel
}

// maxBoxes is the largest number of boxes in a panel.
const maxBoxes = 200

func (f Box) kind() (string, int) { return "box", len(f.Panels) }

func (f Box) draw() (*sheet, error) {
	s := &sheet{title: f.Title}
	s.width, s.height = panelSize(len(f.Panels))
	values := noSpan()
	for i, in := range f.Panels {
		if len(in.Boxes) == 0 || len(in.Boxes) > maxBoxes {
			return nil, fmt.Errorf("panel %d has %d boxes: give 1 to %d", i+1, len(in.Boxes), maxBoxes)
		}
		s.width = max(s.width, 9*vg.Length(len(in.Boxes)))
		for _, b := range in.Boxes {
			values.add(slices.DeleteFunc(slices.Clone(b.Values), f.hides)...)
		}
	}
	if values.empty() {
		return nil, fmt.Errorf("no box has a value: every one is missing or not a number")
	}
	var groups numbering
	for _, in := range f.Panels {
		p := newPlot()
		f.Y.apply(&p.Y, values.padded(0.05, f.Y.Bounds, f.Y.Log), 5)
		p.X.Label.Text = in.X
		p.X.Min, p.X.Max = -0.6, float64(len(in.Boxes))-0.4
		p.Add(gridLines(false, true))
		wide := min(16, 0.62*s.width/vg.Length(len(in.Boxes)))
		var names []string
		for j, b := range in.Boxes {
			names = append(names, b.Label)
			line := f.Colours.style(b.Label, 0).color
			body := faint(line, 90)
			if group := groupStyle(groups.of(b.Group)); b.Group != "" {
				body = faint(group.color, groupAlpha)
				if f.Colours == nil {
					line = group.color
				}
			}
			if five, ok := NewFiveNumbers(slices.DeleteFunc(slices.Clone(b.Values), f.hides)); ok {
				p.Add(plotted(func(c draw.Canvas, p *plot.Plot) { five.plot(c, p, float64(j), wide, line, body) }))
			}
		}
		nameX(&p.X, middles(names), s.width)
		s.add(p, in.Title)
	}
	if len(groups.labels) > 1 {
		s.legend = groups.legend(func(label string, of style) entry {
			return patchEntry(label, faint(of.color, groupAlpha), draw.LineStyle{Color: of.color, Width: 0.8})
		})
	}
	return s, nil
}

// middles keeps, of equal names side by side, the one in the middle.
func middles(names []string) []string {
	out := make([]string, len(names))
	for from := 0; from < len(names); {
		to := from
		for to < len(names) && names[to] == names[from] {
			to++
		}
		out[(from+to-1)/2] = names[from]
		from = to
	}
	return out
}

// hides reports whether the axis cannot show a value.
func (f Box) hides(v float64) bool { return !f.Y.shows(v) }

// FiveNumbers are the numbers of a box plot with matplotlib's defaults: quartiles by linear interpolation, whiskers to
// the last value within 1.5 times the interquartile range beyond the quartiles, and outliers outside the whiskers.
type FiveNumbers struct {
	Low, Q1, Median, Q3, High float64
	Outliers                  []float64 // ascending
}

// NewFiveNumbers computes the five numbers of the finite values. It returns false without any.
func NewFiveNumbers(values []float64) (f FiveNumbers, ok bool) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !usable(v) })
	if len(values) == 0 {
		return f, false
	}
	slices.Sort(values)
	f.Q1, f.Median, f.Q3 = stats.Quantile(values, 0.25), stats.Quantile(values, 0.5), stats.Quantile(values, 0.75)
	reach := 1.5 * (f.Q3 - f.Q1)
	f.Low, f.High = f.Q1, f.Q3 // as in matplotlib, without a value between a quartile and its fence
	for _, v := range values {
		if v < f.Q1-reach || v > f.Q3+reach {
			f.Outliers = append(f.Outliers, v)
		} else {
			f.Low, f.High = min(f.Low, v), max(f.High, v)
		}
	}
	return f, true
}

// groupAlpha is the opacity of boxes of groups, whose greys differ in lightness only.
const groupAlpha = 150

// plot draws a box at a place on the axis.
func (f FiveNumbers) plot(c draw.Canvas, p *plot.Plot, at float64, wide vg.Length, colour, inside color.NRGBA) {
	toX, toY := p.Transforms(&c)
	x, half := toX(at), wide/2
	line := draw.LineStyle{Color: colour, Width: 0.8}
	for _, whisker := range [][2]float64{{f.Q1, f.Low}, {f.Q3, f.High}} {
		c.StrokeLine2(line, x, toY(whisker[0]), x, toY(whisker[1]))
		c.StrokeLine2(line, x-half/2, toY(whisker[1]), x+half/2, toY(whisker[1]))
	}
	body := vg.Rectangle{Min: vg.Point{X: x - half, Y: toY(f.Q1)}, Max: vg.Point{X: x + half, Y: toY(f.Q3)}}
	fill(c, body, color.White)
	fill(c, body, inside)
	c.SetLineStyle(line)
	c.Stroke(body.Path())
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 1.4}, x-half, toY(f.Median), x+half, toY(f.Median))
	for _, v := range f.Outliers {
		ring := draw.GlyphStyle{Color: colour, Radius: 1.6, Shape: draw.RingGlyph{}}
		c.DrawGlyphNoClip(ring, vg.Point{X: x, Y: toY(v)})
	}
}
