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
	sheet := &sheet{title: f.Title}
	sheet.width, sheet.height = panelSize(len(f.Panels))
	values := noSpan()
	for i, in := range f.Panels {
		if len(in.Boxes) == 0 || len(in.Boxes) > maxBoxes {
			return nil, fmt.Errorf("panel %d has %d boxes: give 1 to %d", i+1, len(in.Boxes), maxBoxes)
		}
		sheet.width = max(sheet.width, 9*vg.Length(len(in.Boxes)))
		for _, b := range in.Boxes {
			values.addOn(f.Y, b.Values...)
		}
	}

	if values.empty() {
		return nil, fmt.Errorf("no box has a value: every one is missing or not a number")
	}

	var groups numbering
	for _, in := range f.Panels {
		chart := newPlot()
		f.Y.apply(&chart.Y, values.padded(0.05, f.Y), 5)
		chart.X.Label.Text = in.X
		chart.X.Min, chart.X.Max = -0.6, float64(len(in.Boxes))-0.4
		chart.Add(gridLines(false, true))
		wide := min(16, 0.62*sheet.width/vg.Length(len(in.Boxes)))
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
			if five, ok := NewFiveNumbers(b.Values, f.Y); ok {
				chart.Add(plotted(func(c draw.Canvas, p *plot.Plot) { five.plot(c, p, float64(j), wide, line, body) }))
			}
		}

		nameX(&chart.X, middles(names), sheet.width)
		sheet.add(chart, in.Title)
	}

	if len(groups) > 1 {
		sheet.legend = groups.legend(func(label string, look style) entry {
			return patchEntry(label, faint(look.color, groupAlpha), draw.LineStyle{Color: look.color, Width: 0.8})
		})
	}

	return sheet, nil
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

// FiveNumbers are the numbers of a box plot with matplotlib's defaults: quartiles by linear interpolation, whiskers to
// the last value within 1.5 times the interquartile range beyond the quartiles, and outliers outside the whiskers.
type FiveNumbers struct {
	Low, Q1, Median, Q3, High float64
	Outliers                  []float64 // ascending
}

// NewFiveNumbers computes the five numbers of the values that an axis can show. It returns false without any.
func NewFiveNumbers(values []float64, y Axis) (numbers FiveNumbers, ok bool) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !y.shows(v) })
	if len(values) == 0 {
		return numbers, false
	}

	slices.Sort(values)
	numbers.Q1, numbers.Median, numbers.Q3 = stats.Quantile(values, 0.25), stats.Quantile(values,
		0.5), stats.Quantile(values, 0.75)
	reach := 1.5 * (numbers.Q3 - numbers.Q1)

	// as in matplotlib, without a value between a quartile and its fence
	numbers.Low, numbers.High = numbers.Q1, numbers.Q3
	for _, v := range values {
		if v < numbers.Q1-reach || v > numbers.Q3+reach {
			numbers.Outliers = append(numbers.Outliers, v)
		} else {
			numbers.Low, numbers.High = min(numbers.Low, v), max(numbers.High, v)
		}
	}

	return numbers, true
}

// groupAlpha is the opacity of boxes of groups, whose greys differ in lightness only.
const groupAlpha = 150

// plot draws a box at a place on the axis.
func (f FiveNumbers) plot(canvas draw.Canvas, p *plot.Plot, at float64, wide vg.Length, colour, inside color.NRGBA) {
	toX, toY := p.Transforms(&canvas)
	centre, half := toX(at), wide/2
	line := draw.LineStyle{Color: colour, Width: 0.8}
	for _, whisker := range [][2]float64{{f.Q1, f.Low}, {f.Q3, f.High}} {
		canvas.StrokeLine2(line, centre, toY(whisker[0]), centre, toY(whisker[1]))
		canvas.StrokeLine2(line, centre-half/2, toY(whisker[1]), centre+half/2, toY(whisker[1]))
	}

	body := vg.Rectangle{Min: vg.Point{X: centre - half, Y: toY(f.Q1)}, Max: vg.Point{X: centre + half, Y: toY(f.Q3)}}
	fill(canvas, body, color.White)
	fill(canvas, body, inside)
	canvas.SetLineStyle(line)
	canvas.Stroke(body.Path())
	canvas.StrokeLine2(draw.LineStyle{Color: ink, Width: 1.4}, centre-half, toY(f.Median), centre+half, toY(f.Median))
	for _, v := range f.Outliers {
		ring := draw.GlyphStyle{Color: colour, Radius: 1.6, Shape: draw.RingGlyph{}}
		canvas.DrawGlyphNoClip(ring, vg.Point{X: centre, Y: toY(v)})
	}
}
