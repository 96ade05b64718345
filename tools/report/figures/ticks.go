package figures

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// usable tells whether a value can be drawn: a number, and not beyond anything that is measured here.
func usable(v float64) bool { return math.Abs(v) < 1e100 }

// onLog tells whether a logarithmic axis can show a value.
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

func (s span) empty() bool { return s.low > s.high }

// padded widens the span by a part of itself, but not beyond the bounds where these differ. A span of one value gets
// some width.
func (s span) padded(part float64, within [2]float64, log bool) span {
	if s.empty() {
		return span{1, 2}
	}
	if log {
		low, high := math.Log10(s.low), math.Log10(s.high)
		pad := max(part*(high-low), 0.05)
		return span{math.Pow(10, low-pad), math.Pow(10, high+pad)}
	}
	pad := part * (s.high - s.low)
	if wide := math.Max(math.Abs(s.low), math.Abs(s.high)); s.high-s.low <= 1e-9*wide || s.high == s.low {
		pad = max(0.5, 0.02*wide)
	}
	out := span{s.low - pad, s.high + pad}
	if within[0] < within[1] {
		out.low, out.high = max(out.low, min(within[0], s.low)), min(out.high, max(within[1], s.high))
	}
	if out.low >= out.high {
		return span{out.low - 0.5, out.high + 0.5}
	}
	return out
}

// evenTicks marks about n round values, written by format if there is one.
type evenTicks struct {
	n      int
	format func(float64) string
}

// Ticks implements plot.Ticker.
func (e evenTicks) Ticks(low, high float64) []plot.Tick {
	raw := (high - low) / float64(max(1, e.n))
	if !(raw > 0) || !usable(raw) {
		return nil
	}
	power := math.Floor(math.Log10(raw))
	unit, factor := math.Pow(10, power), 10.0
	for _, f := range []float64{1, 2, 2.5, 5} {
		if raw <= f*unit*(1+1e-9) {
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

// logTicks marks the powers of ten, and 2 and 5 times these where few powers are in range.
type logTicks struct{ format func(float64) string }

// Ticks implements plot.Ticker.
func (l logTicks) Ticks(low, high float64) []plot.Tick {
	if !(low > 0) || !usable(high) {
		return nil
	}
	from, to := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	decades := math.Log10(high / low)
	every := 1 + int(decades/7)
	var out []plot.Tick
	for d := from; d <= to; d++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow10(d)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if (m == 1 && d%every == 0) || decades < 1.2 && (m == 2 || m == 5) || decades < 0.5 {
				t.Label = short(v)
				if l.format != nil {
					t.Label = l.format(v)
				}
			} else if decades > 5 {
				continue
			}
			out = append(out, t)
		}
	}
	return out
}

// dataTicks marks the values themselves, which sweeps choose by hand, if there are few; nil if there are many.
func dataTicks(values []float64) plot.Ticker {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	if len(values) > 12 {
		return nil
	}
	out := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		out[i] = plot.Tick{Value: v, Label: short(v)}
	}
	return out
}

// number writes a value with a fixed number of places after the point, and zero without a sign.
func number(v float64, places int) string {
	text := strconv.FormatFloat(v, 'f', places, 64)
	if f, err := strconv.ParseFloat(text, 64); err == nil && f == 0 {
		text = strconv.FormatFloat(0, 'f', places, 64)
	}
	return text
}

// short writes a value in few letters: 0.001, 16, 1e-05.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
