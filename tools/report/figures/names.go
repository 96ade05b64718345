package figures

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// longest is the room for a name beside an axis, in points.
const longest vg.Length = 96

// nameX puts names under an axis of the given length, at 0, 1, 2 and on. Names that would overlap are turned; short
// ones, such as the numbers of a hundred clients, are thinned out instead.
func nameX(a *plot.Axis, names []string, length vg.Length) {
	style := a.Tick.Label
	cell := length / vg.Length(max(1, len(names)))
	widest := vg.Length(0)
	for _, n := range names {
		widest = max(widest, style.Width(shorten(n, style, longest)))
	}
	every := 1
	switch high := vg.Length(tickSize + 1); {
	case widest+3 <= cell:
	case widest <= 18:
		every = thin(widest+4, cell)
	case cell >= high*1.4:
		a.Tick.Label.Rotation = math.Pi / 4
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = draw.XRight, -0.8
	default:
		a.Tick.Label.Rotation = math.Pi / 2
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = draw.XRight, -0.35
		every = thin(high, cell)
	}
	marks := nameTicks(names, every, func(n string) string { return shorten(n, style, longest) })
	if a.Tick.Label.Rotation != 0 {
		for i := range marks {
			marks[i].Label += " " // the library sets turned labels too close to the axis
		}
	}
	a.Tick.Marker = marks
}

// nameY puts names beside an upright axis of the given length, the first on top if down is set.
func nameY(a *plot.Axis, names []string, length vg.Length, down bool) {
	style := a.Tick.Label
	every := thin(tickSize+0.5, length/vg.Length(max(1, len(names))))
	marks := nameTicks(names, every, func(n string) string { return shorten(n, style, longest) })
	if down {
		for i := range marks {
			marks[i].Value = float64(len(names)-1) - marks[i].Value
		}
	}
	a.Tick.Marker = marks
}

// thin is how many cells a label takes, rounded up to 1, 2, 5, 10, 20 and on.
func thin(label, cell vg.Length) int {
	for unit := 1; unit < 1e6; unit *= 10 {
		for _, f := range []int{1, 2, 5} {
			if vg.Length(f*unit)*cell >= label {
				return f * unit
			}
		}
	}
	return 1e6
}

// nameTicks labels every so many names. Names that count from 1 are labelled at round numbers.
func nameTicks(names []string, every int, cut func(string) string) plot.ConstantTicks {
	marks := plot.ConstantTicks{}
	start := 0
	if len(names) > 0 && names[0] == "1" && every <= len(names) && names[every-1] == strconv.Itoa(every) {
		start = every - 1
	}
	for i := start; i < len(names); i += every {
		marks = append(marks, plot.Tick{Value: float64(i), Label: cut(names[i])})
	}
	return marks
}

// counted are the names 1, 2, ... n.
func counted(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	return names
}
