package synthetic

import (
	"math"

	"promptfed/runtime/convert"
)

// point is a point in the plane. Figures are designed in the square [-1,1] with y pointing down, and are drawn in
// pixels.
type point struct{ X, Y float64 }

// contour is a polyline; the caller decides whether it is closed.
type contour []point

// poly returns the contour of alternating x and y coordinates.
func poly(xy ...float64) contour {
	c := make(contour, len(xy)/2)
	for i := range c {
		c[i] = point{xy[2*i], xy[2*i+1]}
	}
	return c
}

func rect(x0, y0, x1, y1 float64) contour { return poly(x0, y0, x1, y0, x1, y1, x0, y1) }

// arc runs from angle a0 to angle a1 (degrees, 0 to the right, growing clockwise on the screen).
func arc(cx, cy, rx, ry, a0, a1 float64) contour {
	n := 2 + int(math.Abs(a1-a0)/15)
	c := make(contour, n)
	for i := range c {
		s, k := math.Sincos((a0 + (a1-a0)*float64(i)/float64(n-1)) * math.Pi / 180)
		c[i] = point{cx + rx*k, cy + ry*s}
	}
	return c
}

func ellipse(cx, cy, rx, ry float64) contour {
	c := arc(cx, cy, rx, ry, 0, 360)
	return c[:len(c)-1]
}

func circle(cx, cy, r float64) contour { return ellipse(cx, cy, r, r) }

// regular returns a regular polygon whose first corner is at angle phase (degrees).
func regular(n int, r, phase float64) contour { return star(n, r, 0, phase) }

// star returns a polygon that alternates between radii r and inner; with inner 0 there are no inner corners.
func star(n int, r, inner, phase float64) contour {
	var c contour
	for i := range n {
		a := (phase + 360*float64(i)/float64(n)) * math.Pi / 180
		c = append(c, point{r * math.Cos(a), r * math.Sin(a)})
		if inner > 0 {
			a += math.Pi / float64(n)
			c = append(c, point{inner * math.Cos(a), inner * math.Sin(a)})
		}
	}

	return c
}

// smooth returns the closed Catmull-Rom spline through the given points.
func smooth(xy ...float64) contour {
	k := poly(xy...)
	n := len(k)
	const steps = 5
	var c contour
	for i := range n {
		p, q, r, s := k[(i+n-1)%n], k[i], k[(i+1)%n], k[(i+2)%n]
		for j := range steps {
			t := float64(j) / steps
			c = append(c, point{spline(p.X, q.X, r.X, s.X, t), spline(p.Y, q.Y, r.Y, s.Y, t)})
		}
	}

	return c
}

func spline(p, q, r, s, t float64) float64 {
	return 0.5 * (2*q + (r-p)*t + (2*p-5*q+4*r-s)*t*t + (3*q-p-3*r+s)*t*t*t)
}

func join(parts ...contour) contour {
	var c contour
	for _, p := range parts {
		c = append(c, p...)
	}
	return c
}

func reversed(c contour) contour {
	r := make(contour, len(c))
	for i, p := range c {
		r[len(c)-1-i] = p
	}
	return r
}

// mirrored flips left and right.
func mirrored(c contour) contour {
	return c.each(func(p point) point { return point{-p.X, p.Y} })
}

func (c contour) shift(dx, dy float64) contour {
	return c.each(func(p point) point { return point{p.X + dx, p.Y + dy} })
}

// turn rotates about the origin, clockwise on the screen, in degrees.
func (c contour) turn(deg float64) contour {
	s, k := math.Sincos(deg * math.Pi / 180)
	return c.each(func(p point) point { return point{k*p.X - s*p.Y, s*p.X + k*p.Y} })
}

func (c contour) each(f func(point) point) contour {
	return convert.Slice(c, f)
}

// positive returns a contour running in the direction of positive signed area, so that overlapping contours add up.
func positive(contour contour) contour {
	area := 0.0
	for i, p := range contour {
		q := contour[(i+1)%len(contour)]
		area += p.X*q.Y - q.X*p.Y
	}

	if area < 0 {
		return reversed(contour)
	}

	return contour
}
