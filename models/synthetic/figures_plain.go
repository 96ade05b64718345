package synthetic

import "math"

// figure draws one class into the square [-1,1].
type figure struct {
	name string
	draw func(*pen)
}

// plain lists the geometric classes.
var plain = []figure{
	{"circle", func(p *pen) { p.fill(body, circle(0, 0, 0.9)) }},
	{"square", func(p *pen) { p.fill(body, rect(-0.8, -0.8, 0.8, 0.8)) }},
	{"triangle", func(p *pen) {
		x := p.vary(-0.3, 0.3)
		p.fill(body, poly(x, -0.9, 0.9, 0.75, -0.9, 0.75))
	}},
	{"diamond", func(p *pen) {
		w := p.vary(0.5, 0.68)
		p.fill(body, poly(0, -1, w, 0, 0, 1, -w, 0))
	}},
	{"hexagon", func(p *pen) { p.fill(body, regular(6, 0.95, 0)) }},
	{"star", func(p *pen) { p.fill(body, star(5, 1, p.vary(0.36, 0.5), -90)) }},
	{"heart", func(p *pen) {
		d := p.vary(0.75, 1)
		p.fill(body, smooth(0, -0.35, 0.25, -0.75, 0.65, -0.8, 0.92, -0.4, 0.7, 0.1, 0.3, d*0.6, 0, d,
			-0.3, d*0.6, -0.7, 0.1, -0.92, -0.4, -0.65, -0.8, -0.25, -0.75))
	}},
	{"arrow", func(p *pen) {
		t, n := p.vary(0.14, 0.28), p.vary(-0.05, 0.3)
		p.fill(body, poly(-1, -t, n, -t, n, -0.65, 1, 0, n, 0.65, n, t, -1, t))
	}},
	{"cross", func(p *pen) {
		t := p.vary(0.2, 0.34)
		p.fill(body, poly(-t, -0.95, t, -0.95, t, -t, 0.95, -t, 0.95, t, t, t, t, 0.95, -t, 0.95, -t, t, -0.95, t,
			-0.95, -t, -t, -t))
	}},
	{"crescent moon", func(p *pen) {
		a, r := p.vary(50, 65), 0.95
		s, c := math.Sincos(a * math.Pi / 180)
		x := c*r + p.vary(0, 0.2)
		q := math.Hypot(c*r-x, s*r)
		b := math.Atan2(s*r, c*r-x) * 180 / math.Pi
		p.fill(body, join(arc(0, 0, r, r, a, 360-a), arc(x, 0, q, q, 360-b, b)))
	}},
	{"ring", func(p *pen) { p.punched(body, circle(0, 0, 0.95), circle(0, 0, p.vary(0.45, 0.65))) }},
	{"spiral", func(p *pen) {
		turns, r := p.vary(2.2, 2.9), 0.95
		var c contour
		n := int(turns * 24)
		for i := range n + 1 {
			t := float64(i) / float64(n)
			s, k := math.Sincos(t * turns * 2 * math.Pi)
			c = append(c, point{r * t * k, r * t * s})
		}
		p.line(body, p.vary(0.14, 0.2), c)
	}},
}
