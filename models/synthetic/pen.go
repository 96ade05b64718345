package synthetic

import (
	"math/rand/v2"

	"promptfed/runtime/convert"
)

// role selects the colour of an op in a sample.
type role uint8

const (
	body  role = iota // the main colour, with the texture if there is one
	part              // the second colour
	ink               // dark details
	light             // pale details
)

// op is one filled area (width 0) or one stroked line of a figure.
type op struct {
	role   role
	width  float64 // of a line, in the units of the contours
	closed bool    // a line that returns to its start
	area   []contour
}

// pen records a figure. Figures draw random proportions from it, so two samples of a class have different shapes.
type pen struct {
	ops []op
	rng *rand.Rand
}

// vary draws a proportion uniformly.
func (p *pen) vary(lo, hi float64) float64 { return lo + (hi-lo)*p.rng.Float64() }

// fill paints the union of closed contours.
func (p *pen) fill(r role, cs ...contour) {
	area := convert.Slice(cs, positive)
	p.ops = append(p.ops, op{role: r, area: area})
}

// punched paints outer without the holes inside it.
func (p *pen) punched(r role, outer contour, holes ...contour) {
	area := []contour{positive(outer)}
	for _, h := range holes {
		area = append(area, reversed(positive(h)))
	}
	p.ops = append(p.ops, op{role: r, area: area})
}

// line strokes open polylines.
func (p *pen) line(r role, width float64, cs ...contour) {
	p.ops = append(p.ops, op{role: r, width: width, area: cs})
}

// loop strokes closed polylines.
func (p *pen) loop(r role, width float64, cs ...contour) {
	p.ops = append(p.ops, op{role: r, width: width, closed: true, area: cs})
}
