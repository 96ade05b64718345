package synthetic

// nature lists plants, animals and the sky.
var nature = []figure{
	{"sun", func(p *pen) {
		n := 8 + p.rng.IntN(4)
		r := p.vary(0.45, 0.55)
		for i := range n {
			a := 360 * float64(i) / float64(n)
			p.fill(part, poly(r+0.1, -0.1, 1, 0, r+0.1, 0.1).turn(a))
		}
		p.fill(body, circle(0, 0, r))
	}},
	{"cloud", func(p *pen) {
		b := p.vary(0.4, 0.5)
		p.fill(body, smooth(-0.6, 0.4, -0.98, 0.2, -0.85, -0.15, -0.55, -0.2, -0.4, -b-0.1, 0, -b-0.15, 0.25, -0.25,
			0.55, -0.4, 0.85, -0.1, 0.98, 0.2, 0.65, 0.42, 0, 0.42))
	}},
	{"lightning bolt", func(p *pen) {
		x := p.vary(-0.1, 0.1)
		p.fill(body, poly(0.25, -1, -0.55, 0.1+x, -0.05, 0.1+x, -0.3, 1, 0.55, -0.2+x, 0.05, -0.2+x, 0.6, -1))
	}},
	{"tree", func(p *pen) {
		w := p.vary(0.12, 0.18)
		p.fill(part, rect(-w, 0.1, w, 1))
		r := p.vary(0.38, 0.48)
		p.fill(body, circle(-0.38, -0.1, r), circle(0.38, -0.1, r), circle(0, -0.5, r+0.05), circle(0, -0.1, r))
	}},
	{"pine tree", func(p *pen) {
		p.fill(part, rect(-0.13, 0.6, 0.13, 1))
		w := p.vary(0.6, 0.8)
		p.fill(body, poly(0, -1, w*0.6, -0.35, -w*0.6, -0.35), poly(0, -0.65, w*0.8, 0.15, -w*0.8, 0.15),
			poly(0, -0.25, w, 0.68, -w, 0.68))
	}},
	{"flower", func(p *pen) {
		n := 5 + p.rng.IntN(2)
		r := p.vary(0.24, 0.28)
		p.line(part, 0.12, poly(0, 0, 0.02, 1))
		p.fill(part, ellipse(0.25, 0, 0.25, 0.1).turn(-25).shift(0, 0.75))
		var petals []contour
		for i := range n {
			petals = append(petals, ellipse(0.42, 0, r+0.08, r).turn(360*float64(i)/float64(n)).shift(0, -0.28))
		}
		p.fill(body, petals...)
		p.fill(light, circle(0, -0.28, 0.22))
	}},
	{"leaf", func(p *pen) {
		w := p.vary(0.42, 0.6)
		p.fill(body, smooth(0, -1, w*0.7, -0.5, w, 0, w*0.6, 0.45, 0, 0.75, -w*0.6, 0.45, -w, 0, -w*0.7, -0.5))
		p.line(ink, 0.07, poly(0, -0.75, 0, 1), poly(0, -0.2, w*0.6, -0.4), poly(0, -0.2, -w*0.6, -0.4),
			poly(0, 0.25, w*0.6, 0.05), poly(0, 0.25, -w*0.6, 0.05))
	}},
	{"mushroom", func(p *pen) {
		w := p.vary(0.2, 0.3)
		p.fill(light, smooth(-w, 0, w, 0, w+0.05, 0.85, 0, 0.95, -w-0.05, 0.85))
		p.fill(body, join(arc(0, 0.1, 0.92, p.vary(0.85, 1.05), 180, 360), poly(0.8, 0.2, -0.8, 0.2)))
		p.fill(light, circle(-0.4, -0.25, 0.14), circle(0.1, -0.5, 0.17), circle(0.5, -0.15, 0.13))
	}},
	{"apple", func(p *pen) {
		w := p.vary(0.8, 0.92)
		p.line(ink, 0.1, poly(0, -0.5, 0.08, -0.95))
		p.fill(part, ellipse(0.25, 0, 0.26, 0.11).turn(-25).shift(0.08, -0.7))
		p.fill(body, smooth(0, -0.48, 0.4, -0.62, w, -0.25, 0.7, 0.6, 0.3, 0.95, 0, 0.85, -0.3, 0.95, -0.7, 0.6, -w,
			-0.25, -0.4, -0.62))
	}},
	{"fish", func(p *pen) {
		h := p.vary(0.42, 0.58)
		p.fill(part, poly(-0.4, 0, -1, -0.5, -0.85, 0, -1, 0.5), poly(0, -h+0.1, -0.2, -h-0.3, 0.4, -h+0.15))
		p.fill(body, smooth(-0.65, 0, -0.2, -h*0.8, 0.3, -h, 0.75, -h*0.6, 1, 0, 0.75, h*0.6, 0.3, h, -0.2, h*0.8))
		p.fill(light, circle(0.62, -0.12, 0.14))
		p.fill(ink, circle(0.65, -0.12, 0.07))
		p.line(ink, 0.06, arc(0.15, 0, 0.25, 0.35, -60, 60))
	}},
	{"cat", func(p *pen) {
		e := p.vary(0.9, 1.05)
		p.fill(body, poly(-0.82, 0, -0.75, -e, -0.2, -0.5), poly(0.82, 0, 0.75, -e, 0.2, -0.5), ellipse(0, 0.15, 0.85,
			0.72))
		p.fill(light, ellipse(-0.34, 0, 0.16, 0.2), ellipse(0.34, 0, 0.16, 0.2))
		p.fill(ink, ellipse(-0.34, 0, 0.07, 0.17), ellipse(0.34, 0, 0.07, 0.17), poly(-0.11, 0.3, 0.11, 0.3, 0, 0.42))
		p.line(ink, 0.05, poly(-0.25, 0.42, -1, 0.32), poly(-0.25, 0.5, -0.95, 0.62), poly(0.25, 0.42, 1, 0.32),
			poly(0.25, 0.5, 0.95, 0.62))
	}},
	{"butterfly", func(p *pen) {
		u, l := p.vary(0.8, 1), p.vary(0.6, 0.85)
		upper := smooth(0, -0.1, 0.25, -0.65, u, -0.85, u, -0.2, 0.4, 0.05)
		lower := smooth(0, 0.05, 0.45, 0.05, l, 0.3, 0.55, 0.85, 0.15, 0.5)
		p.fill(body, upper, mirrored(upper))
		p.fill(part, lower, mirrored(lower))
		p.line(ink, 0.14, poly(0, -0.45, 0, 0.55))
		p.line(ink, 0.05, poly(0, -0.45, 0.22, -0.9), poly(0, -0.45, -0.22, -0.9))
	}},
	{"snowman", func(p *pen) {
		r := p.vary(0.48, 0.56)
		p.fill(body, circle(0, 0.5, r), circle(0, -0.3, 0.36))
		p.fill(part, rect(-0.26, -1, 0.26, -0.6), rect(-0.44, -0.66, 0.44, -0.54))
		p.fill(ink, circle(-0.13, -0.37, 0.06), circle(0.13, -0.37, 0.06), circle(0, 0.3, 0.06), circle(0, 0.6, 0.06))
		p.line(ink, 0.06, poly(-0.45, 0.3, -0.95, -0.05), poly(0.45, 0.3, 0.95, -0.05))
	}},
}
