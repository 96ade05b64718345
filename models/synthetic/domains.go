package synthetic

import "math"

// domain is one visual style.
type domain struct {
	name    string
	phrases []string // "a photo of", ... before an article and a class
	ground  *rgb     // a constant background, or nil
	render  func(*scene)
}

// domains is the table of visual domains.
var domains = []domain{
	{"photo", []string{"a photo of", "a photograph of", "a picture of"}, nil, photo},
	{"cartoon", []string{"a cartoon of", "a cartoon drawing of", "a comic picture of"}, nil, cartoon},
	{"sketch", []string{"a sketch of", "a pencil sketch of", "a line drawing of"}, &rgb{238, 234, 224}, sketch},
	{"neon", []string{"a neon sign of", "a glowing neon outline of", "a neon picture of"}, &rgb{14, 12, 26}, neon},
	{"mosaic", []string{"a mosaic of", "a tiled mosaic of", "a mosaic picture of"}, nil, mosaic},
	{"silhouette", []string{"a silhouette of", "a shadow picture of", "the silhouette of"}, nil, silhouette},
}

// shade returns the flat colour of a role; the body has the texture.
func (v *scene) shade(r role) func(x, y int) rgb {
	switch r {
	case body:
		if v.weave.at == nil {
			return solid(v.main)
		}
		over, under := v.second, v.main
		if v.pattern() {
			over, under = under, over
		}
		return func(x, y int) rgb { return mix(under, over, v.weave.level(x, y)) }
	case part:
		return solid(v.second)
	case ink:
		if v.main.luma() < 70 {
			return solid(rgb{205, 205, 200})
		}
		return solid(rgb{28, 26, 30})
	}

	return solid(rgb{244, 242, 232})
}

// photo draws soft light and shadow on an uneven background, with sensor noise.
func photo(scene *scene) {
	far, near := scene.field(scene.size/3), scene.field(scene.size/9)
	other := scene.ground.gain(150 + scene.rng.Int32N(160))
	tilt := scene.rng.Int32N(81) - 40
	scene.each(func(x, y int, _ rgb) rgb {
		c := mix(scene.ground, other, far(x, y))
		return c.gain(216 + near(x, y)*80/256 + tilt*int32(2*y-scene.size)/int32(scene.size))
	})

	scene.items(scene.behind, 0)
	whole := scene.silhouette()
	radius := max(1, scene.size/20)
	soft := blur(whole, scene.size, radius)
	s, c := math.Sincos(scene.rng.Float64() * 2 * math.Pi)
	lx, ly := int(math.Round(256*c)), int(math.Round(256*s))
	dx, dy := int(math.Round(c*2.5*scene.unit)), int(math.Round(s*2.5*scene.unit))
	scene.paint(moved(soft, scene.size, dx, dy), 130, solid(rgb{10, 10, 14}))
	height := blur(soft, scene.size, radius)

	at := func(x, y int) int32 {
		return int32(height[min(max(y, 0), scene.size-1)*scene.size+min(max(x, 0), scene.size-1)])
	}
	for _, o := range scene.figure {
		flat := scene.shade(o.role)
		scene.paint(scene.raster.cover(o), 256, func(x, y int) rgb {
			slope := ((at(x+radius, y)-at(x-radius, y))*int32(lx) + (at(x, y+radius)-at(x, y-radius))*int32(ly)) >> 8
			return flat(x, y).gain(246 + slope*2/3)
		})
	}

	scene.items(scene.before, 0)
	warm := scene.rng.Int32N(31) - 15
	g := scene.style.Grain
	scene.each(func(x, y int, c rgb) rgb {
		n := scene.rng.Uint64()
		for i := range c {
			c[i] += int32(n>>(16*i)&0xff) * g >> 8
			c[i] -= g / 2
		}
		return rgb{c[0] + warm, c[1], c[2] - warm}
	})
}

// cartoon draws flat colours and thick dark outlines.
func cartoon(v *scene) {
	v.flat(v.ground)
	line := 1.6 * v.unit
	v.items(v.behind, line)
	for _, o := range v.figure {
		v.outlined(o, line, rgb{18, 16, 20})
	}
	v.items(v.before, line)
}

// outlined paints an op and a line around it.
func (v *scene) outlined(o op, line float64, c rgb) {
	switch {
	case o.role == ink:
	case o.width > 0:
		v.paint(v.raster.stroke(o.area, o.width+line, o.closed), 256, solid(c))
	default:
		v.paint(v.raster.stroke(o.area, 2*line, true), 256, solid(c))
	}

	v.paint(v.raster.cover(o), 256, v.shade(o.role))
}

func (v *scene) flat(c rgb) { v.each(func(int, int, rgb) rgb { return c }) }

// items paints distractors in flat colours, with a dark outline if line is above 0.
func (v *scene) items(items []item, line float64) {
	for _, it := range items {
		if line > 0 {
			v.paint(v.raster.stroke(it.area, it.width+2*line, it.width == 0), 256, solid(rgb{18, 16, 20}))
		}
		v.paint(v.raster.cover(it.op), 256, solid(it.colour))
	}
}

// moved shifts a mask; pixels from outside are empty.
func moved(in []uint8, size, dx, dy int) []uint8 {
	out := make([]uint8, len(in))
	for y := max(0, dy); y < min(size, size+dy); y++ {
		for x := max(0, dx); x < min(size, size+dx); x++ {
			out[y*size+x] = in[(y-dy)*size+x-dx]
		}
	}
	return out
}
