package figures

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// CostRow is the cost of one method. Zero and values that are not numbers mean unknown.
type CostRow struct {
	Label   string
	Bytes   float64 // sent and received
	Seconds float64
}

// Cost shows bytes and seconds of methods as bars.
type Cost struct {
	Title   string
	Bytes   string // subject of the bytes, such as "per client and round"; may be empty
	Seconds string // likewise
	Colours Colours
	Rows    []CostRow
}

// maxRows is the largest number of methods in a figure.
const maxRows = 100

func (f Cost) kind() (string, int) { return "cost", len(f.Rows) }

func (f Cost) draw() (*sheet, error) {
	if len(f.Rows) > maxRows {
		return nil, fmt.Errorf("%d methods: give 1 to %d", len(f.Rows), maxRows)
	}

	sheet := &sheet{title: f.Title, columns: 2, width: 190, height: max(50, 15*vg.Length(len(f.Rows)))}
	for _, side := range []struct {
		label  string
		value  func(CostRow) float64
		format func(float64) string
	}{
		{"bytes " + f.Bytes, func(r CostRow) float64 { return r.Bytes }, Bytes},
		{"seconds " + f.Seconds, func(r CostRow) float64 { return r.Seconds }, Seconds},
	} {
		values, known := make([]float64, len(f.Rows)), noSpan()
		for i, r := range f.Rows {
			if values[i] = side.value(r); usable(values[i]) && values[i] >= 1e-9 {
				known.add(values[i])
			} else {
				values[i] = math.NaN()
			}
		}
		if !known.empty() {
			p := f.bars(values, known.high, side.format, sheet.width, sheet.height)
			p.X.Label.Text = strings.TrimSpace(side.label)
			sheet.add(p, "")
		}
	}

	if len(sheet.panels) == 0 {
		return nil, fmt.Errorf("no method has a cost: every one is missing, zero or not a number")
	}

	return sheet, nil
}

// bars returns a plot with one bar per method, the first on top, and the value at the end of each bar.
func (f Cost) bars(values []float64, most float64, format func(float64) string, width, height vg.Length) *plot.Plot {
	names := make([]string, len(values))
	style, widest := letters(smallSize, draw.XLeft, middle), vg.Length(0)
	for i, v := range values {
		if names[i] = f.Rows[i].Label; usable(v) {
			widest = max(widest, style.Width(format(v)))
		}
	}

	room := float64((widest + 6) / width) // share of the panel right of the longest bar
	chart := newPlot()
	chart.X.Min, chart.X.Max, chart.Y.Min, chart.Y.Max = 0, most/(1-room), -0.5, float64(len(values))-0.5
	chart.X.Tick.Marker = evenTicks{n: 4, format: format}
	chart.X.Tick.Marker = roomy(chart, chart.X.Tick.Marker, width)
	chart.Y.Tick.Length = 0
	nameY(&chart.Y, names, height)

	chart.Add(gridLines(true, false), plotted(func(canvas draw.Canvas, p *plot.Plot) {
		toX, toY := p.Transforms(&canvas)
		half := min(5, 0.36*(toY(1)-toY(0)))
		for i, v := range values {
			y := toY(float64(len(values) - 1 - i))
			if !usable(v) {
				canvas.FillText(coloured(style, grey), vg.Point{X: canvas.Min.X + 3, Y: y}, "not measured")
				continue
			}
			bar := vg.Rectangle{Min: vg.Point{X: canvas.Min.X, Y: y - half}, Max: vg.Point{X: toX(v), Y: y + half}}
			fill(canvas, bar, f.Colours.style(names[i], 0).color)
			canvas.FillText(style, vg.Point{X: toX(v) + 3, Y: y}, format(v))
		}
	}))

	return chart
}

// unit is a unit of measurement and the smallest number that is formatted in it.
type unit struct {
	from, size float64
	name       string
}

// Bytes formats a number of bytes briefly: 1.2 MB.
func Bytes(v float64) string {
	return inUnit(v, unit{0.9995e12, 1e12, "TB"}, unit{0.9995e9, 1e9, "GB"}, unit{0.9995e6, 1e6, "MB"},
		unit{0.9995e3, 1e3, "kB"}, unit{0, 1, "B"})
}

// Seconds formats a time briefly: 12 ms, 3.4 s, 2.1 h.
func Seconds(v float64) string {
	if v == 0 {
		return "0 s"
	}
	return inUnit(v, unit{7200, 3600, "h"}, unit{120, 60, "min"}, unit{0.9995, 1, "s"}, unit{0.9995e-3, 1e-3, "ms"},
		unit{0, 1e-6, "µs"})
}

// inUnit formats a number in the first unit for its size, with three digits, or more for a larger number.
func inUnit(value float64, units ...unit) string {
	unit := units[len(units)-1]
	for _, other := range units {
		if math.Abs(value) >= other.from {
			unit = other
			break
		}
	}

	value /= unit.size
	text := ""
	switch a := math.Abs(value); {
	case a >= 1e6:
		text = strconv.FormatFloat(value, 'g', 3, 64)
	case a >= 99.95 || value == math.Trunc(value):
		text = number(value, 0)
	case a >= 9.995:
		text = strings.TrimSuffix(number(value, 1), ".0")
	default:
		text = strings.TrimSuffix(strings.TrimRight(number(value, 2), "0"), ".")
	}

	return text + " " + unit.name
}
