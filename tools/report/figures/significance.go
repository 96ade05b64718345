package figures

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
)

// Significance is a matrix of methods: how much the method of a row is above that of a column, with marks of how sure
// that is.
type Significance struct {
	Title      string
	Value      string // what differs, such as "difference of accuracy (points)"
	Names      []string
	Difference [][]float64 // mean of the row's method minus mean of the column's
	P          [][]float64 // p values of these; what is not a number gets no mark
	Test       string      // where they are from, or why there are none; may be empty
}

// Draw implements Drawer.
func (f Significance) Draw() (*Figure, error) {
	return drawn("significance", len(f.Names), f.draw)
}

// key says what the stars mean, where there is anything that could have some.
func (f Significance) key() string {
	tested := slices.ContainsFunc(f.P, func(row []float64) bool { return slices.ContainsFunc(row, usable) })
	switch {
	case f.Test == "":
		return "* p < 0.05, ** p < 0.01, *** p < 0.001."
	case !tested:
		return f.Test + "."
	}
	return "* p < 0.05, ** p < 0.01, *** p < 0.001: " + f.Test + "."
}

// stars mark p values.
func stars(p float64) string {
	switch {
	case math.IsNaN(p):
		return ""
	case p < 0.001:
		return "***"
	case p < 0.01:
		return "**"
	case p < 0.05:
		return "*"
	}
	return ""
}

func (f Significance) draw() (*Figure, error) {
	n := len(f.Names)
	if n == 0 || n > maxRows {
		return nil, fmt.Errorf("%d methods: give 1 to %d", n, maxRows)
	}
	if err := rectangular(f.Difference, n, n); err != nil {
		return nil, fmt.Errorf("differences: %w", err)
	}
	if err := rectangular(f.P, n, n); err != nil {
		return nil, fmt.Errorf("p values: %w", err)
	}
	values := make([][]float64, n)
	s := noSpan()
	for i := range values {
		values[i] = append([]float64(nil), f.Difference[i]...)
		values[i][i] = math.NaN() // a method against itself
		for j, v := range values[i] {
			if p := f.P[i][j]; p < 0 || p > 1 {
				return nil, fmt.Errorf("the p value of %q against %q is %g: give 0 to 1", clean(f.Names[i]),
					clean(f.Names[j]), p)
			}
			if usable(v) {
				s.add(v, -v)
			}
		}
	}
	if s.empty() {
		s = span{-1, 1}
	}
	colours, err := newScale(BlueRed, s, [2]float64{})
	if err != nil {
		return nil, err
	}
	side := max(15, min(34, 330/vg.Length(n)))
	sh := sheet{title: f.Title, width: side * vg.Length(n), height: side * vg.Length(n), bar: &colourBar{colours,
		f.Value},
		note: "Row minus column. " + f.key()}
	p := newMatrixPlot(f.Names, f.Names, sh.width, sh.height)
	digits, fit := places([]HeatPanel{{Values: values}}, side-3, side/2)
	p.Add(heat{values: values, colour: colours.colour, text: func(i, j int) []string {
		mark := stars(f.P[i][j])
		if !fit {
			return []string{mark}
		}
		text := number(values[i][j], digits)
		if values[i][j] > 0 {
			text = "+" + text
		}
		if mark == "" {
			return []string{text}
		}
		return []string{text, mark}
	}})
	sh.panels = []*panel{{Plot: p}}
	return sh.figure()
}
