package synthetic

// sketch draws shaky dark strokes on paper; a texture becomes hatching.
func sketch(scene *scene) {
	paper := scene.field(max(2, scene.size/24))
	scene.each(func(x, y int, _ rgb) rgb { return scene.ground.gain(236 + paper(x, y)*24/256 + scene.rng.Int32N(9)) })
	lead := scene.main.gain(60).jitter(scene.rng, 10)
	draw := func(op op, strength int32) {
		width := (0.8 + 0.5*scene.rng.Float64()) * scene.unit
		if op.width > 0 && op.role == ink {
			scene.paint(scene.raster.stroke(scene.shaky(op.area), width, op.closed), strength, solid(lead))
			return
		}

		mask := scene.raster.cover(op)
		scene.paint(mask, 256, func(x, y int) rgb { return scene.ground })
		switch {
		case op.role == ink:
			scene.paint(mask, 150, solid(lead))
		case op.role == body && scene.weave.at != nil:
			scene.paint(mask, 140, func(x, y int) rgb { return mix(scene.ground, lead, scene.weave.level(x, y)) })
		case op.role == part:
			scene.paint(mask, 60, solid(lead))
		}

		if op.width > 0 {
			scene.paint(scene.raster.cover(op), 170, solid(lead))
			return
		}

		for range 2 {
			scene.paint(scene.raster.stroke(scene.shaky(op.area), width, true), strength, solid(lead))
		}
	}

	for _, it := range scene.behind {
		draw(op{ink, max(it.width, 0.01), it.width == 0, it.area}, 110)
	}

	for _, o := range scene.figure {
		draw(o, 215)
	}

	for _, it := range scene.before {
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
func neon(scene *scene) {
	wall := scene.field(max(2, scene.size/8))
	scene.each(func(x, y int, _ rgb) rgb { return scene.ground.gain(200 + wall(x, y)*2/3) })
	tube := func(cs []contour, closed bool, c rgb, strength int32) {
		glow := blur(scene.raster.stroke(cs, 2.6*scene.unit, closed), scene.size, max(1, scene.size/32))
		scene.paint(glow, strength*3/4, solid(c))
		scene.paint(scene.raster.stroke(cs, 1.3*scene.unit, closed), strength, solid(mix(c, rgb{255, 255, 255}, 90)))
	}

	bright := func(c rgb) rgb {
		top := max(c[0], c[1], c[2], 1)
		for i := range c {
			c[i] = c[i] * 250 / top
		}
		return c
	}

	colours := map[role]rgb{body: bright(scene.main), part: bright(scene.second), ink: bright(mix(scene.main,
		scene.second, 128)),
		light: {240, 235, 225}}
	for _, it := range scene.behind {
		tube(it.area, it.width == 0, bright(it.colour), 110)
	}

	for _, op := range scene.figure {
		c := colours[op.role]
		if op.width > 0 {
			tube(op.area, op.closed, c, 256)
			continue
		}
		mask := scene.raster.cover(op)
		scene.paint(mask, 200, solid(scene.ground))
		if op.role == body && scene.weave.at != nil {
			scene.paint(mask, 150, func(x, y int) rgb { return mix(scene.ground, c, scene.weave.level(x, y)) })
		}
		tube(op.area, true, c, 256)
	}

	for _, it := range scene.before {
		tube(it.area, it.width == 0, bright(it.colour), 200)
	}
}
