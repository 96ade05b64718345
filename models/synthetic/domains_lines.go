package synthetic

// sketch draws shaky dark strokes on paper; a texture becomes hatching.
func sketch(v *scene) {
	paper := v.field(max(2, v.size/24))
	v.each(func(x, y int, _ rgb) rgb { return v.ground.gain(236 + paper(x, y)*24/256 + v.rng.Int32N(9)) })
	lead := v.main.gain(60).jitter(v.rng, 10)
	draw := func(o op, strength int32) {
		width := (0.8 + 0.5*v.rng.Float64()) * v.unit
		if o.width > 0 && o.role == ink {
			v.paint(v.raster.stroke(v.shaky(o.area), width, o.closed), strength, solid(lead))
			return
		}

		mask := v.raster.cover(o)
		v.paint(mask, 256, func(x, y int) rgb { return v.ground })
		switch {
		case o.role == ink:
			v.paint(mask, 150, solid(lead))
		case o.role == body && v.weave.at != nil:
			v.paint(mask, 140, func(x, y int) rgb { return mix(v.ground, lead, v.weave.level(x, y)) })
		case o.role == part:
			v.paint(mask, 60, solid(lead))
		}

		if o.width > 0 {
			v.paint(v.raster.cover(o), 170, solid(lead))
			return
		}

		for range 2 {
			v.paint(v.raster.stroke(v.shaky(o.area), width, true), strength, solid(lead))
		}
	}

	for _, it := range v.behind {
		draw(op{ink, max(it.width, 0.01), it.width == 0, it.area}, 110)
	}

	for _, o := range v.figure {
		draw(o, 215)
	}

	for _, it := range v.before {
		draw(op{ink, max(it.width, 0.01), it.width == 0, it.area}, 180)
	}
}

// shaky moves points like an unsteady hand.
func (v *scene) shaky(cs []contour) []contour {
	out := make([]contour, len(cs))
	amp := 0.9 * v.unit
	for i, c := range cs {
		dx, dy := 0.0, 0.0
		out[i] = c.each(func(p point) point {
			dx, dy = 0.7*dx+amp*(v.rng.Float64()-0.5), 0.7*dy+amp*(v.rng.Float64()-0.5)
			return point{p.X + dx, p.Y + dy}
		})
	}

	return out
}

// neon draws glowing tubes on a dark wall.
func neon(v *scene) {
	wall := v.field(max(2, v.size/8))
	v.each(func(x, y int, _ rgb) rgb { return v.ground.gain(200 + wall(x, y)*2/3) })
	tube := func(cs []contour, closed bool, c rgb, strength int32) {
		glow := blur(v.raster.stroke(cs, 2.6*v.unit, closed), v.size, max(1, v.size/32))
		v.paint(glow, strength*3/4, solid(c))
		v.paint(v.raster.stroke(cs, 1.3*v.unit, closed), strength, solid(mix(c, rgb{255, 255, 255}, 90)))
	}

	bright := func(c rgb) rgb {
		top := max(c[0], c[1], c[2], 1)
		for i := range c {
			c[i] = c[i] * 250 / top
		}
		return c
	}

	colours := map[role]rgb{body: bright(v.main), part: bright(v.second), ink: bright(mix(v.main, v.second, 128)),
		light: {240, 235, 225}}
	for _, it := range v.behind {
		tube(it.area, it.width == 0, bright(it.colour), 110)
	}

	for _, o := range v.figure {
		c := colours[o.role]
		if o.width > 0 {
			tube(o.area, o.closed, c, 256)
			continue
		}
		mask := v.raster.cover(o)
		v.paint(mask, 200, solid(v.ground))
		if o.role == body && v.weave.at != nil {
			v.paint(mask, 150, func(x, y int) rgb { return mix(v.ground, c, v.weave.level(x, y)) })
		}
		tube(o.area, true, c, 256)
	}

	for _, it := range v.before {
		tube(it.area, it.width == 0, bright(it.colour), 200)
	}
}
