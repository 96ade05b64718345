package figures

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// CostRow is the cost of one method. Zero and values that are not numbers mean unknown.
type CostRow struct {
	Label    string
	Bytes    float64 // sent and received
	Seconds  float64
	Accuracy float64 // in percent, for Against
}

// Cost shows bytes and seconds of methods: as bars, or with Against as points of accuracy against them.
type Cost struct {
	Title   string
	Bytes   string // subject of the bytes, such as "per client and round"; may be empty
	Seconds string // likewise
	Log     bool
	Against bool
	Colours Colours
	Rows    []CostRow
}

// maxRows is the largest number of methods in a figure.
const maxRows = 100

// Draw implements Drawer.
func (f Cost) Draw() (*Figure, error) {
	return drawn("cost", len(f.Rows), f.draw)
}

func (f Cost) draw() (*Figure, error) {
	if len(f.Rows) > maxRows {
		return nil, fmt.Errorf("%d methods: give 1 to %d", len(f.Rows), maxRows)
	}
	s := sheet{title: f.Title, columns: 2, width: 190, height: max(50, 15*vg.Length(len(f.Rows)))}
	if f.Against {
		s.width, s.height = 200, 150
	}
	for _, side := range []struct {
		label, of string
		value     func(CostRow) float64
		format    func(float64) string
	}{
		{"bytes", f.Bytes, func(r CostRow) float64 { return r.Bytes }, Bytes},
		{"seconds", f.Seconds, func(r CostRow) float64 { return r.Seconds }, Seconds},
	} {
		values := make([]float64, len(f.Rows))
		known := noSpan()
		for i, r := range f.Rows {
			if values[i] = side.value(r); !usable(values[i]) || values[i] < 1e-9 || f.Against && !usable(r.Accuracy) {
				values[i] = math.NaN()
			}
			known.add(values[i])
		}
		if known.empty() {
			continue
		}
		label := side.label
		if side.of != "" {
			label += " " + side.of
		}
		var p *plot.Plot
		if f.Against {
			p = f.points(values, known)
		} else {
			p = f.bars(values, known, side.format, s.width, s.height)
		}
		p.X.Label.Text = label
		if f.Log {
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{side.format}
		} else {
			p.X.Tick.Marker = evenTicks{4, side.format}
		}
		p.X.Tick.Marker = roomy(p, p.X.Tick.Marker, s.width)
		s.panels = append(s.panels, &panel{Plot: p})
	}
	if len(s.panels) == 0 {
		return nil, fmt.Errorf("no method has a cost: every one is missing, zero or not a number")
	}
	if f.Against {
		for i, r := range f.Rows {
			s.legend = append(s.legend, glyphEntry(r.Label, f.Colours.style(r.Label, i).glyph(3.6)))
		}
	}
	return s.figure()
}

// points returns a plot of accuracy against values.
func (f Cost) points(values []float64, known span) *plot.Plot {
	p := newPlot()
	y := noSpan()
	cloud := scatter{radius: 4}
	for i, v := range values {
		if usable(v) {
			y.add(f.Rows[i].Accuracy)
			cloud.add(v, f.Rows[i].Accuracy, f.Colours.style(f.Rows[i].Label, i))
		}
	}
	Axis{Label: "accuracy (%)", Bounds: [2]float64{0, 100}}.apply(&p.Y, y.padded(0.08, [2]float64{0, 100}, false), 5)
	x := known.padded(0.06, [2]float64{0, math.Inf(1)}, f.Log)
	p.X.Min, p.X.Max = x.low, x.high
	p.Add(gridLines{x: true, y: true}, cloud)
	return p
}

// bars returns a plot with one bar per method, the first on top, and the value at the end of each bar.
func (f Cost) bars(values []float64, known span, format func(float64) string, width, height vg.Length) *plot.Plot {
	p := newPlot()
	names := make([]string, len(values))
	texts, colours := make([]string, len(values)), make([]color.NRGBA, len(values))
	style := letters(smallSize, draw.XLeft, middle)
	widest := vg.Length(0)
	for i, v := range values {
		colours[i] = f.Colours.style(f.Rows[i].Label, 0).color
		if names[i] = f.Rows[i].Label; usable(v) {
			texts[i] = format(v)
			widest = max(widest, style.Width(texts[i]))
		}
	}
	room := float64((widest + 6) / width) // share of the panel right of the longest bar
	p.X.Min, p.X.Max = 0, known.high/(1-room)
	if f.Log {
		p.X.Min = known.low / math.Pow(known.high/known.low*2, 0.15)
		p.X.Max = p.X.Min * math.Pow(known.high/p.X.Min, 1/(1-room))
	}
	p.Y.Min, p.Y.Max = -0.5, float64(len(values))-0.5
	p.Y.Tick.Length = 0
	nameY(&p.Y, names, height, true)
	p.Add(gridLines{x: true}, costBars{values, texts, colours})
	return p
}

// costBars are horizontal bars from the left edge.
type costBars struct {
	values  []float64
	texts   []string
	colours []color.NRGBA
}

// Plot implements plot.Plotter.
func (b costBars) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	half := min(5, 0.36*(toY(1)-toY(0)))
	style := letters(smallSize, draw.XLeft, middle)
	for i, v := range b.values {
		y := toY(float64(len(b.values) - 1 - i))
		if !usable(v) {
			c.FillText(coloured(style, grey), vg.Point{X: c.Min.X + 3, Y: y}, "not measured")
			continue
		}
		c.SetColor(b.colours[i])
		c.Fill(vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: y - half}, Max: vg.Point{X: toX(v), Y: y + half}}.Path())
		c.FillText(style, vg.Point{X: toX(v) + 3, Y: y}, b.texts[i])
	}
}

// Bytes formats a number of bytes briefly: 1.2 MB.
func Bytes(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if math.Abs(v) >= unit.size*0.9995 {
			return digits(v/unit.size) + " " + unit.name
		}
	}
	return digits(v) + " B"
}

// Seconds formats a time briefly: 12 ms, 3.4 s, 2.1 h.
func Seconds(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0 s"
	case a < 0.9995e-3:
		return digits(v*1e6) + " µs"
	case a < 0.9995:
		return digits(v*1e3) + " ms"
	case a < 120:
		return digits(v) + " s"
	case a < 7200:
		return digits(v/60) + " min"
	}
	return digits(v/3600) + " h"
}

// digits formats a number with three digits, or more for a larger number.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 99.95 || v == math.Trunc(v):
		return number(v, 0)
	case a >= 9.995:
		return trimmed(v, 1)
	}
	return trimmed(v, 2)
}
