package synthetic

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
)

// maxSize limits the side of an image in pixels.
const maxSize = 2048

// scene is a sample in pixel coordinates, which a domain renders.
type scene struct {
	Sample
	size   int
	img    *image.RGBA
	raster *raster
	rng    *rand.Rand // for pixels
	figure []op       // in pixels
	behind []item     // distractors, drawn before the figure
	before []item     // distractors, drawn after it
	main   rgb
	second rgb // colour of parts, and the other colour of a texture
	ground rgb
	weave  weave
	unit   float64 // pixels per unit of line width; one unit is one pixel at 64x64
}

// item is a distractor: one op and its colour.
type item struct {
	op
	colour rgb
}

// Image draws the sample with sides of size pixels (4 to 2048).
func (s Sample) Image(size int) (*image.RGBA, error) {
	if size < 4 || size > maxSize {
		return nil, fmt.Errorf("synthetic: image size %d: take 4 to %d", size, maxSize)
	}

	d, ok := named(domains, s.Domain)
	if !ok {
		return nil, fmt.Errorf("synthetic: no domain %q: make samples with New", s.Domain)
	}

	v := s.scene(d, size)
	d.render(v)
	return v.img, nil
}

func (s Sample) scene(d domain, size int) *scene {
	rng := s.source(1)
	scene := &scene{Sample: s, size: size, img: image.NewRGBA(image.Rect(0, 0, size, size)), raster: newRaster(size),
		rng: s.source(2), unit: float64(size) / 64}
	main, _ := named(palette, s.Colour)
	ground, _ := named(palette, s.Ground)
	if d.ground != nil {
		ground.value = *d.ground
	}

	scene.ground, scene.main = ground.value.jitter(rng, 18), main.value.jitter(rng, 18)
	scene.second = against(rng, 70, scene.main, scene.ground).value.jitter(rng, 18)
	scene.lay(rng)
	return scene
}

// lay places figure, texture and distractors.
func (v *scene) lay(rng *rand.Rand) {
	st := v.style
	size := float64(v.size)
	drawn := &pen{rng: rng}
	period := size * (0.09 + 0.07*rng.Float64())
	v.weave.texture, _ = named(textures, v.Texture)
	if f, ok := named(figures, v.Class); ok {
		f.draw(drawn)
	} else { // a pattern
		drawn.fill(body, rect(-3, -3, 3, 3))
		period = size * (0.12 + 0.14*rng.Float64())
	}

	s, c := math.Sincos(rng.Float64() * 2 * math.Pi)
	v.weave.cos, v.weave.sin, v.weave.sharp = c/period, s/period, period
	v.weave.du, v.weave.dv = rng.Float64(), rng.Float64()

	d := st.Scale[0] + (st.Scale[1]-st.Scale[0])*rng.Float64()
	v.figure = v.place(rng, drawn.ops, d, st)
	for range rng.IntN(st.Clutter + 1) {
		q := &pen{rng: rng}
		shapes := [...]contour{circle(0, 0, 1), rect(-1, -0.6, 1, 0.6), regular(3, 1, 0), regular(6, 1, 0)}
		if k := rng.IntN(len(shapes) + 1); k < len(shapes) {
			q.fill(body, shapes[k])
		} else {
			q.line(body, 0.3, arc(-0.5, 0, 0.5, 0.5, 180, 360), arc(0.5, 0, 0.5, 0.5, 180, 0))
		}

		far := Style{Shift: 1, Rotate: 180, Stretch: 0.3}
		it := item{v.place(rng, q.ops, 0.08+0.1*rng.Float64(), far)[0],
			palette[rng.IntN(len(palette))].value.jitter(rng, 18)}
		if rng.Float64() < st.Occlude {
			v.before = append(v.before, it)
		} else {
			v.behind = append(v.behind, it)
		}
	}
}

// place transforms ops from figure coordinates to pixels: warp, stretch and shear, rotate, scale to the diameter (a
// share of the image side), shift.
func (v *scene) place(rng *rand.Rand, ops []op, diameter float64, st Style) []op {
	spread := func(a float64) float64 { return a * (2*rng.Float64() - 1) }
	size := float64(v.size)
	radius := diameter * size / 2
	kx, ky, shear := 1+spread(st.Stretch)/2, 1+spread(st.Stretch)/2, spread(st.Stretch)
	sin, cos := math.Sincos(spread(st.Rotate) * math.Pi / 180)
	free := (size/2 - 0.85*radius) * st.Shift
	cx, cy := size/2+spread(free), size/2+spread(free)
	var ph [4]float64
	for i := range ph {
		ph[i] = 2 * math.Pi * rng.Float64()
	}

	move := func(p point) point {
		p = point{p.X + st.Warp*math.Sin(2.5*p.Y+ph[0]) + st.Warp/2*math.Sin(5*p.X+ph[1]),
			p.Y + st.Warp*math.Sin(2.5*p.X+ph[2]) + st.Warp/2*math.Sin(5*p.Y+ph[3])}
		x, y := kx*(p.X+shear*p.Y), ky*p.Y
		return point{cx + radius*(cos*x-sin*y), cy + radius*(sin*x+cos*y)}
	}

	out := make([]op, len(ops))
	for i, o := range ops {
		area := make([]contour, len(o.area))
		for j, c := range o.area {
			area[j] = refine(c, o.width == 0 || o.closed).each(move)
		}
		out[i] = op{o.role, o.width * radius, o.closed, area}
	}

	return out
}

// refine splits long edges, so that a warp bends them.
func refine(c contour, closed bool) contour {
	var out contour
	for i, p := range c {
		out = append(out, p)
		if i == len(c)-1 && !closed {
			break
		}
		q := c[(i+1)%len(c)]
		n := min(8, int(math.Hypot(q.X-p.X, q.Y-p.Y)/0.3))
		for j := 1; j < n; j++ {
			t := float64(j) / float64(n)
			out = append(out, point{p.X + (q.X-p.X)*t, p.Y + (q.Y-p.Y)*t})
		}
	}

	return out
}

// at returns the colour of a pixel.
func (v *scene) at(x, y int) rgb {
	pix := v.img.Pix[4*(y*v.size+x):][:3]
	return rgb{int32(pix[0]), int32(pix[1]), int32(pix[2])}
}

// put sets the colour of a pixel.
func (v *scene) put(x, y int, c rgb) {
	pix := v.img.Pix[4*(y*v.size+x):][:4]
	pix[0], pix[1], pix[2], pix[3] = clamp(c[0]), clamp(c[1]), clamp(c[2]), 255
}

// paint blends a colour into the image where mask covers it; strength is 0..256.
func (v *scene) paint(mask []uint8, strength int32, colour func(x, y int) rgb) {
	for y := range v.size {
		row := mask[y*v.size : (y+1)*v.size]
		for x, m := range row {
			if m == 0 {
				continue
			}
			a := int32(m) + int32(m>>7)
			v.put(x, y, mix(v.at(x, y), colour(x, y), a*strength>>8))
		}
	}
}

// each replaces every pixel of the image.
func (v *scene) each(f func(x, y int, old rgb) rgb) {
	for y := range v.size {
		for x := range v.size {
			v.put(x, y, f(x, y, v.at(x, y)))
		}
	}
}

func solid(c rgb) func(int, int) rgb { return func(int, int) rgb { return c } }

// silhouette returns the coverage of the whole figure.
func (v *scene) silhouette() []uint8 {
	out := make([]uint8, v.size*v.size)
	for _, o := range v.figure {
		for i, m := range v.raster.cover(o) {
			out[i] = max(out[i], m)
		}
	}
	return out
}

// field returns smooth value noise: random levels on a coarse lattice, interpolated linearly; cell is in pixels.
func (v *scene) field(cell int) func(x, y int) int32 {
	cell = max(cell, 1)
	n := v.size/cell + 2
	at := make([]int32, n*n)
	for i := range at {
		at[i] = v.rng.Int32N(256)
	}

	c := int32(cell)
	return func(x, y int) int32 {
		i, j := y/cell*n+x/cell, int32(x%cell)
		k := int32(y % cell)
		return ((at[i]*(c-j)+at[i+1]*j)*(c-k) + (at[i+n]*(c-j)+at[i+n+1]*j)*k) / (c * c)
	}
}
