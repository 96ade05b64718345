package figures

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/runtime/convert"
)

// usable reports whether a value can be drawn: a number within the range of plausible measurements.
func usable(v float64) bool { return math.Abs(v) < 1e100 }

// onLog reports whether a logarithmic axis can show a value.
func onLog(v float64) bool { return v > 1e-100 }

// span is the range of the values added to it.
type span struct{ low, high float64 }

func noSpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) add(values ...float64) {
	for _, v := range values {
		if usable(v) {
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
}

// addOn adds the values that an axis can show.
func (s *span) addOn(a Axis, values ...float64) {
	for _, v := range values {
		if a.shows(v) {
			s.add(v)
		}
	}
}

func (s span) empty() bool { return s.low > s.high }

// padded widens the span by a part of itself, but not beyond the bounds of its axis. A span of one value gets some
// width.
func (s span) padded(part float64, a Axis) span {
	if s.empty() {
		return span{1, 2}
	}

	if a.Log {
		low, high := math.Log10(s.low), math.Log10(s.high)
		pad := max(part*(high-low), 0.05)
		return span{math.Pow(10, low-pad), math.Pow(10, high+pad)}
	}

	pad := part * (s.high - s.low)
	if wide := math.Max(math.Abs(s.low), math.Abs(s.high)); s.high-s.low <= 1e-9*wide || s.high == s.low {
		pad = max(0.5, 0.02*wide)
	}

	out := span{s.low - pad, s.high + pad}
	if a.Bounds[0] < a.Bounds[1] {
		out.low = max(out.low, min(a.Bounds[0], s.low))
		out.high = min(out.high, max(a.Bounds[1], s.high))
	}

	if out.low >= out.high {
		return span{out.low - 0.5, out.high + 0.5}
	}

	return out
}

// evenTicks marks about n round values, formatted by format if set.
type evenTicks struct {
	n      int
	format func(float64) string
	whole  bool // no fractions
}

// Ticks implements plot.Ticker.
func (e evenTicks) Ticks(low, high float64) []plot.Tick {
	raw := (high - low) / float64(max(1, e.n))
	if !(raw > 0) || !usable(raw) {
		return nil
	}

	if e.whole {
		raw = max(raw, 1)
	}

	power := math.Floor(math.Log10(raw))
	unit, factor := math.Pow(10, power), 10.0
	for _, f := range []float64{1, 2, 2.5, 5} {
		if raw <= f*unit*(1+1e-9) && !(e.whole && f == 2.5 && power == 0) {
			factor = f
			break
		}
	}

	step := factor * unit
	places := int(-math.Floor(math.Log10(step) + 1e-9))
	if factor == 2.5 {
		places++
	}

	var out []plot.Tick
	first, last := math.Ceil(low/step-1e-6), math.Floor(high/step+1e-6)
	for i := first; i <= last && len(out) < 100; i++ {
		v := i * step
		label := number(v, max(0, places))
		if math.Abs(high) >= 1e6 || math.Abs(low) >= 1e6 || step < 1e-4 {
			label = strconv.FormatFloat(v, 'g', 4, 64)
		}
		if e.format != nil {
			label = e.format(v)
		}
		out = append(out, plot.Tick{Value: min(high, max(low, v)), Label: label})
	}

	return out
}

// logTicks marks the powers of ten, and with few powers in range also their multiples by 2 and 5.
type logTicks struct{ format func(float64) string }

// Ticks implements plot.Ticker.
func (l logTicks) Ticks(low, high float64) (out []plot.Tick) {
	if !(low > 0) || !usable(high) {
		return nil
	}

	if l.format == nil {
		l.format = short
	}

	decades := math.Log10(high / low)
	every := 1 + int(decades/7)
	for d := int(math.Floor(math.Log10(low))); d <= int(math.Ceil(math.Log10(high))); d++ {
		for m := 1; m < 10; m++ {
			t := plot.Tick{Value: float64(m) * math.Pow10(d)}
			labelled := m == 1 && d%every == 0 || decades < 1.2 && (m == 2 || m == 5) || decades < 0.5
			if t.Value < low*(1-1e-9) || t.Value > high*(1+1e-9) || !labelled && decades > 5 {
				continue
			}
			if labelled {
				t.Label = l.format(t.Value)
			}
			out = append(out, t)
		}
	}

	return out
}

// dataTicks marks the values themselves, such as the chosen values of a sweep. It is nil for many values.
func dataTicks(values []float64) plot.Ticker {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	if len(values) > 12 {
		return nil
	}
	return plot.ConstantTicks(convert.Slice(values, func(v float64) plot.Tick {
		return plot.Tick{Value: v, Label: short(v)}
	}))
}

// number formats a value with a fixed number of decimals, and zero without a sign.
func number(v float64, places int) string {
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return text
}

// short formats a value briefly: 0.001, 16, 1e-05.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// longest is the largest width of a name beside an axis, in points.
const longest vg.Length = 96

// nameX puts names under an axis of the given length, at 0, 1, 2 and so on. Overlapping names are rotated. Overlapping
// short names, such as the numbers of a hundred clients, are thinned out instead.
func nameX(axis *plot.Axis, names []string, length vg.Length) {
	marks, style := nameTicks(names, axis.Tick.Label), &axis.Tick.Label
	cell, widest := length/vg.Length(max(1, len(names))), vg.Length(0)
	for _, m := range marks {
		widest = max(widest, style.Width(m.Label))
	}

	every, high := 1, vg.Length(tickSize+1)
	switch {
	case widest+3 <= cell:
	case widest <= 18:
		every = everyNth(widest+4, cell)
	case cell >= high*1.4:
		style.Rotation, style.XAlign, style.YAlign = math.Pi/4, draw.XRight, -0.8
	default:
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XRight, -0.35
		every = everyNth(high, cell)
	}

	if style.Rotation != 0 {
		for i := range marks {
			marks[i].Label += " " // the library sets turned labels too close to the axis
		}
	}

	axis.Tick.Marker = thinned(marks, every)
}

// nameY puts names beside an upright axis of the given length, the first on top.
func nameY(a *plot.Axis, names []string, length vg.Length) {
	marks := thinned(nameTicks(names, a.Tick.Label), everyNth(tickSize+0.5, length/vg.Length(max(1, len(names)))))
	for i := range marks {
		marks[i].Value = float64(len(names)-1) - marks[i].Value
	}
	a.Tick.Marker = marks
}

// everyNth returns the number of cells per label, rounded up to 1, 2, 5, 10, 20 and so on.
func everyNth(label, cell vg.Length) int {
	for unit := 1; unit < 1e6; unit *= 10 {
		for _, f := range []int{1, 2, 5} {
			if vg.Length(f*unit)*cell >= label {
				return f * unit
			}
		}
	}

	return 1e6
}

// nameTicks marks 0, 1, 2 and so on with names.
func nameTicks(names []string, style text.Style) plot.ConstantTicks {
	marks := make(plot.ConstantTicks, len(names))
	for i, n := range names {
		marks[i] = plot.Tick{Value: float64(i), Label: shorten(n, style, longest)}
	}
	return marks
}

// thinned keeps one of every few marks. Names that count from 1 stay at round numbers.
func thinned(marks plot.ConstantTicks, every int) (out plot.ConstantTicks) {
	start := 0
	if every <= len(marks) && strings.TrimSpace(marks[0].Label) == "1" &&
		strings.TrimSpace(marks[every-1].Label) == strconv.Itoa(every) {
		start = every - 1
	}

	for i := start; i < len(marks); i += every {
		out = append(out, marks[i])
	}

	return out
}

// counted returns the names 1, 2, ... n.
func counted(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	return names
}

// roomy removes tick labels that would overlap the previous label.
func roomy(p *plot.Plot, t plot.Ticker, width vg.Length) plot.Ticker {
	var out plot.ConstantTicks
	last := -width
	for _, mark := range t.Ticks(p.X.Min, p.X.Max) {
		if mark.IsMinor() {
			out = append(out, mark)
			continue
		}
		half := p.X.Tick.Label.Width(mark.Label) / 2
		at := width * vg.Length(p.X.Norm(mark.Value))
		if at-half < last+3 {
			mark.Label = ""
		} else {
			last = at + half
		}
		out = append(out, mark)
	}

	return out
}
