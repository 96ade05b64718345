package synthetic

// mosaic draws a flat picture that is cut into uneven square tiles with grout between them.
func mosaic(scene *scene) {
	scene.flat(scene.ground)
	scene.items(scene.behind, 0)
	for _, o := range scene.figure {
		scene.paint(scene.raster.cover(o), 256, scene.shade(o.role))
	}

	scene.items(scene.before, 0)
	tile := max(2, scene.size/20)
	grout := mix(scene.ground, rgb{90, 88, 84}, 150)
	x0, y0 := scene.rng.IntN(tile), scene.rng.IntN(tile)
	for ty := -y0; ty < scene.size; ty += tile {
		for tx := -x0; tx < scene.size; tx += tile {
			scene.tile(max(tx, 0), max(ty, 0), min(tx+tile, scene.size), min(ty+tile, scene.size), grout)
		}
	}
}

// tile fills a rectangle with its mean colour, slightly changed, with grout to the right and below.
func (v *scene) tile(x0, y0, x1, y1 int, grout rgb) {
	var sum rgb
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			for i, level := range v.at(x, y) {
				sum[i] += level
			}
		}
	}

	n := int32((x1 - x0) * (y1 - y0))
	for i := range sum {
		sum[i] /= n
	}

	g := 226 + v.rng.Int32N(61)
	c := sum.gain(g).jitter(v.rng, 6)
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			k := c
			if x == x1-1 || y == y1-1 {
				k = mix(c, grout, 110)
			}
			v.put(x, y, k)
		}
	}
}

// silhouette draws one dark shape before a bright gradient; details are bright.
func silhouette(scene *scene) {
	a, b := mix(scene.ground, rgb{250, 225, 180}, 120+scene.rng.Int32N(80)), mix(scene.ground, rgb{190, 215, 250},
		120+scene.rng.Int32N(80))
	scene.each(func(x, y int, _ rgb) rgb { return mix(a, b, int32(256*y/scene.size)) })
	dark := scene.main.gain(40)
	bright := mix(a, b, 128)
	for _, it := range scene.behind {
		scene.paint(scene.raster.cover(it.op), 90, solid(dark))
	}

	for _, op := range scene.figure {
		mask := scene.raster.cover(op)
		if op.role == ink || op.role == light {
			scene.paint(mask, 220, func(x, y int) rgb {
				if scene.at(x, y).luma() < bright.luma()/2 {
					return bright
				}
				return dark
			})
			continue
		}

		scene.paint(mask, 256, solid(dark))
		if op.role == body && scene.weave.at != nil {
			scene.paint(mask, 110, func(x, y int) rgb { return mix(dark, bright, scene.weave.level(x, y)) })
		}
	}

	for _, it := range scene.before {
		scene.paint(scene.raster.cover(it.op), 200, solid(dark))
	}
}
