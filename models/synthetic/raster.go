package synthetic

import (
	"image"
	"image/draw"
	"math"

	"golang.org/x/image/vector"
)

// raster computes the coverage of contours in pixels. golang.org/x/image/vector fills but does not stroke, so a stroke
// is the union of one rectangle per segment and one disc per sharp corner.
type raster struct {
	rasterizer *vector.Rasterizer
	mask       *image.Alpha
}

func newRaster(size int) *raster {
	return &raster{vector.NewRasterizer(size, size), image.NewAlpha(image.Rect(0, 0, size, size))}
}

func (k *raster) add(c contour) {
	if len(c) == 0 {
		return
	}

	k.rasterizer.MoveTo(float32(c[0].X), float32(c[0].Y))
	for _, p := range c[1:] {
		k.rasterizer.LineTo(float32(p.X), float32(p.Y))
	}

	k.rasterizer.ClosePath()
}

// cover returns the coverage of an op, valid until the next call.
func (k *raster) cover(o op) []uint8 {
	if o.width > 0 {
		return k.stroke(o.area, o.width, o.closed)
	}

	k.rasterizer.Reset(k.mask.Rect.Dx(), k.mask.Rect.Dy())
	for _, c := range o.area {
		k.add(c)
	}

	return k.flush()
}

// stroke returns the coverage of lines of the given width, valid until the next call.
func (k *raster) stroke(cs []contour, width float64, closed bool) []uint8 {
	k.rasterizer.Reset(k.mask.Rect.Dx(), k.mask.Rect.Dy())
	half := width / 2
	for _, line := range cs {
		last := len(line) - 1
		if closed {
			last = len(line)
		}

		var px, py float64
		for i := range last {
			p, q := line[i], line[(i+1)%len(line)]
			dx, dy := q.X-p.X, q.Y-p.Y
			l := math.Hypot(dx, dy)
			if l < 1e-6 {
				continue
			}
			dx, dy = dx/l, dy/l
			nx, ny := -dy*half, dx*half
			k.add(contour{{p.X + nx, p.Y + ny}, {q.X + nx, q.Y + ny}, {q.X - nx, q.Y - ny}, {p.X - nx, p.Y - ny}})
			if px*dx+py*dy < 0.9 {
				k.add(reversed(circleAt(p, half)))
			}
			px, py = dx, dy
		}

		if !closed && len(line) > 0 {
			k.add(reversed(circleAt(line[len(line)-1], half)))
		}
	}

	return k.flush()
}

func circleAt(p point, r float64) contour {
	c := make(contour, 10)
	for i := range c {
		s, k := math.Sincos(float64(i) * math.Pi / 5)
		c[i] = point{p.X + r*k, p.Y + r*s}
	}
	return c
}

func (k *raster) flush() []uint8 {
	k.rasterizer.DrawOp = draw.Src
	k.rasterizer.Draw(k.mask, k.mask.Rect, image.Opaque, image.Point{})
	return k.mask.Pix
}

// blur returns the mean over a square of radius r, along rows and then columns; at the border, it averages only pixels
// inside the image.
func blur(in []uint8, size, r int) []uint8 {
	mid, out := make([]uint8, len(in)), make([]uint8, len(in))
	pass := func(dst, src []uint8, step, next int) {
		for i := range size {
			sum, n, base := 0, 0, i*next
			for j := -r; j < size; j++ {
				if j+r < size {
					sum, n = sum+int(src[base+(j+r)*step]), n+1
				}
				if j-r-1 >= 0 {
					sum, n = sum-int(src[base+(j-r-1)*step]), n-1
				}
				if j >= 0 {
					dst[base+j*step] = uint8(sum / n)
				}
			}
		}
	}

	pass(mid, in, 1, size)
	pass(out, mid, size, 1)
	return out
}
