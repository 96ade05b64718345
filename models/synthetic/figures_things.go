package synthetic

// things lists man-made objects.
var things = []figure{
	{"house", func(p *pen) {
		r := p.vary(0.8, 1)
		p.fill(body, rect(-0.7, -0.1, 0.7, 0.9))
		p.fill(part, poly(-0.95, -0.08, 0, -r, 0.95, -0.08))
		p.fill(ink, rect(-0.15, 0.35, 0.2, 0.9))
		p.fill(light, rect(-0.55, 0.1, -0.27, 0.4), rect(0.32, 0.1, 0.58, 0.4))
	}},
	{"car", func(p *pen) {
		t := p.vary(0.3, 0.5)
		p.fill(body, poly(-1, 0.35, -1, -0.05, -0.6, -0.12, -t, -0.55, t, -0.55, 0.65, -0.1, 1, 0, 1, 0.35))
		p.fill(light, poly(-0.45, -0.12, -t+0.07, -0.43, -0.05, -0.43, -0.05, -0.12), poly(0.07, -0.12, 0.07, -0.43,
			t-0.05, -0.43, 0.48, -0.12))
		p.fill(ink, circle(-0.55, 0.38, 0.24), circle(0.55, 0.38, 0.24))
		p.fill(light, circle(-0.55, 0.38, 0.1), circle(0.55, 0.38, 0.1))
	}},
	{"boat", func(p *pen) {
		h := p.vary(0.8, 1)
		p.line(ink, 0.09, poly(0, 0.4, 0, -h))
		p.fill(part, poly(0.1, -h, 0.8, 0.22, 0.1, 0.22))
		p.fill(light, poly(-0.1, -h+0.25, -0.1, 0.22, -0.6, 0.22))
		p.fill(body, poly(-1, 0.35, 1, 0.35, 0.65, 0.85, -0.65, 0.85))
	}},
	{"rocket", func(p *pen) {
		w := p.vary(0.28, 0.38)
		p.fill(light, poly(-0.18, 0.6, 0, 1, 0.18, 0.6))
		p.fill(part, poly(-w, 0.15, -0.7, 0.75, -w, 0.6), poly(w, 0.15, 0.7, 0.75, w, 0.6))
		p.fill(body, smooth(0, -1, w*0.75, -0.6, w, 0, w, 0.62, 0, 0.66, -w, 0.62, -w, 0, -w*0.75, -0.6))
		p.fill(light, circle(0, -0.25, 0.17))
		p.loop(ink, 0.06, circle(0, -0.25, 0.17))
	}},
	{"key", func(p *pen) {
		r := p.vary(0.36, 0.46)
		p.punched(body, circle(-0.55, 0, r), circle(-0.58, 0, r*0.48))
		p.fill(body, rect(-0.2, -0.1, 1, 0.1), rect(0.5, 0.05, 0.64, 0.4), rect(0.8, 0.05, 0.95, 0.33))
	}},
	{"mug", func(p *pen) {
		w := p.vary(0.5, 0.6)
		p.line(body, 0.17, arc(w-0.05, 0.05, 0.42, 0.4, -85, 85))
		p.fill(body, rect(-w, -0.65, w, 0.8))
		p.fill(light, ellipse(0, -0.65, w, 0.17))
		p.loop(ink, 0.05, ellipse(0, -0.65, w, 0.17))
	}},
	{"ladder", func(p *pen) {
		w, n := p.vary(0.32, 0.45), 4+p.rng.IntN(2)
		for i := range n {
			y := -0.75 + 1.5*float64(i)/float64(n-1)
			p.line(part, 0.12, poly(-w, y, w, y))
		}
		p.line(body, 0.16, poly(-w, -1, -w, 1), poly(w, -1, w, 1))
	}},
	{"umbrella", func(p *pen) {
		h := p.vary(0.75, 0.95)
		p.line(ink, 0.1, join(poly(0, -0.8, 0, 0.7), arc(0.16, 0.75, 0.16, 0.18, 180, 10)))
		p.fill(body, join(arc(0, 0, 0.98, h, 180, 360), reversed(arc(0.65, 0, 0.33, 0.16, 180, 360)),
			reversed(arc(0, 0, 0.33, 0.16, 180, 360)), reversed(arc(-0.65, 0, 0.33, 0.16, 180, 360))))
	}},
	{"bottle", func(p *pen) {
		w := p.vary(0.32, 0.42)
		p.fill(part, rect(-0.15, -1, 0.15, -0.78))
		p.fill(body, poly(-0.12, -0.78, 0.12, -0.78, 0.14, -0.4, w, -0.1, w, 0.95, -w, 0.95, -w, -0.1, -0.14, -0.4))
		p.fill(light, rect(-w, 0.2, w, 0.62))
	}},
	{"envelope", func(p *pen) {
		h := p.vary(0.5, 0.62)
		p.fill(body, rect(-0.95, -h, 0.95, h))
		p.line(ink, 0.08, poly(-0.95, -h, 0, 0.12, 0.95, -h), poly(-0.95, h, -0.28, -0.05), poly(0.95, h, 0.28, -0.05))
		p.loop(ink, 0.08, rect(-0.95, -h, 0.95, h))
	}},
	{"flag", func(p *pen) {
		h := p.vary(0.75, 1)
		p.line(ink, 0.12, poly(-0.75, -1, -0.75, 1))
		p.fill(body, poly(-0.7, -0.95, -0.3, -0.85, 0.15, -0.98, 0.55, -1, 0.95, -0.9, 0.95, h-0.9, 0.55, h-1, 0.15,
			h-0.98, -0.3, h-0.85, -0.7, h-0.95))
	}},
	{"clock", func(p *pen) {
		p.fill(body, circle(0, 0, 0.95))
		p.fill(light, circle(0, 0, 0.74))
		for i := range 12 {
			p.line(ink, 0.06, poly(0.58, 0, 0.7, 0).turn(30*float64(i)))
		}
		p.line(ink, 0.11, poly(0, 0, 0.35, 0).turn(p.vary(0, 360)))
		p.line(ink, 0.08, poly(0, 0, 0.55, 0).turn(p.vary(0, 360)))
	}},
	{"glasses", func(p *pen) {
		r := p.vary(0.34, 0.42)
		p.fill(light, circle(-0.5, 0.05, r), circle(0.5, 0.05, r))
		p.loop(body, 0.14, circle(-0.5, 0.05, r), circle(0.5, 0.05, r))
		p.line(body, 0.12, arc(0, 0, 0.16, 0.14, 180, 360), poly(-0.88, -0.05, -1, -0.4), poly(0.88, -0.05, 1, -0.4))
	}},
	{"hammer", func(p *pen) {
		w := p.vary(0.1, 0.15)
		p.fill(part, rect(-w, -0.5, w, 1))
		p.fill(body, poly(-0.65, -0.9, 0.4, -0.9, 0.8, -0.55, 0.35, -0.42, -0.65, -0.42))
	}},
	{"bell", func(p *pen) {
		w := p.vary(0.75, 0.9)
		p.fill(part, circle(0, 0.78, 0.18), circle(0, -0.85, 0.13))
		p.fill(body, smooth(0, -0.85, 0.4, -0.65, 0.52, 0, w*0.85, 0.45, w, 0.68, 0, 0.7, -w, 0.68, -w*0.85, 0.45,
			-0.52, 0, -0.4, -0.65))
	}},
	{"candle", func(p *pen) {
		w := p.vary(0.22, 0.32)
		p.fill(body, rect(-w, -0.25, w, 0.85))
		p.fill(part, rect(-0.65, 0.8, 0.65, 0.97))
		p.line(ink, 0.06, poly(0, -0.25, 0, -0.45))
		p.fill(light, smooth(0, -1, 0.15, -0.65, 0.12, -0.45, 0, -0.38, -0.12, -0.45, -0.15, -0.65))
	}},
	{"hat", func(p *pen) {
		w := p.vary(0.45, 0.55)
		p.fill(body, ellipse(0, 0.5, 0.98, 0.2), poly(-w, 0.5, -w+0.08, -0.6, w-0.08, -0.6, w, 0.5))
		p.fill(part, rect(-w+0.01, 0.1, w-0.01, 0.36))
	}},
}
