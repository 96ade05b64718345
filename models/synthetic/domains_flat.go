package synthetic

// mosaic draws a flat picture that is cut into uneven square tiles with grout between them.
func mosaic(v *scene) {
	v.flat(v.ground)
	v.items(v.behind, 0)
	for _, o := range v.figure {
		v.paint(v.raster.cover(o), 256, v.shade(o.role))
	}

	v.items(v.before, 0)
	tile := max(2, v.size/20)
	grout := mix(v.ground, rgb{90, 88, 84}, 150)
	x0, y0 := v.rng.IntN(tile), v.rng.IntN(tile)
	for ty := -y0; ty < v.size; ty += tile {
		for tx := -x0; tx < v.size; tx += tile {
			v.tile(max(tx, 0), max(ty, 0), min(tx+tile, v.size), min(ty+tile, v.size), grout)
		}
	}
}

// tile fills a rectangle with its mean colour, slightly changed, with grout to the right and below.
func (v *scene) tile(x0, y0, x1, y1 int, grout rgb) {
	var sum rgb
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			for i := range sum {
				sum[i] += int32(v.img.Pix[4*(y*v.size+x)+i])
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
			pix := v.img.Pix[4*(y*v.size+x):][:3]
			pix[0], pix[1], pix[2] = clamp(k[0]), clamp(k[1]), clamp(k[2])
		}
	}
}

// silhouette draws one dark shape before a bright gradient; details are bright.
func silhouette(v *scene) {
	a, b := mix(v.ground, rgb{250, 225, 180}, 120+v.rng.Int32N(80)), mix(v.ground, rgb{190, 215, 250},
		120+v.rng.Int32N(80))
	v.each(func(x, y int, _ rgb) rgb { return mix(a, b, int32(256*y/v.size)) })
	dark := v.main.gain(40)
	bright := mix(a, b, 128)
	for _, it := range v.behind {
		v.paint(v.raster.cover(it.op), 90, solid(dark))
	}

	for _, o := range v.figure {
		mask := v.raster.cover(o)
		if o.role == ink || o.role == light {
			v.paint(mask, 220, func(x, y int) rgb {
				pix := v.img.Pix[4*(y*v.size+x):]
				if (rgb{int32(pix[0]), int32(pix[1]), int32(pix[2])}).luma() < bright.luma()/2 {
					return bright
				}
				return dark
			})
			continue
		}

		v.paint(mask, 256, solid(dark))
		if o.role == body && v.weave.at != nil {
			v.paint(mask, 110, func(x, y int) rgb { return mix(dark, bright, v.weave.level(x, y)) })
		}
	}

	for _, it := range v.before {
		v.paint(v.raster.cover(it.op), 200, solid(dark))
	}
}
