package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Point3 is a place in space with the value for its colour.
type Point3 struct{ X, Y, Z, Value float64 }

// Scatter3Panel is one box of points. Its axes are linear and have no names.
type Scatter3Panel struct {
	Title   string
	X, Y, Z string
	Points  []Point3
}

// Scatter3 shows points in space coloured by value, in orthographic projection from matplotlib's usual side (azimuth
// -60 degrees, elevation 30): all combinations of three prompt lengths in FedPHA's figures 7 and 9.
type Scatter3 struct {
	Title   string
	Columns int        // of panels; 0: automatic
	Value   string     // meaning of the colour
	Scale   [2]float64 // of the colours; equal numbers: the range of all values
	Palette string     // Viridis or BlueRed
	Panels  []Scatter3Panel
}

// Draw implements Drawer.
func (f Scatter3) Draw() (*Figure, error) {
	return drawn("scatter3", len(f.Panels), f.draw)
}

func (f Scatter3) draw() (*Figure, error) {
	values := noSpan()
	for i, in := range f.Panels {
		if len(in.Points) > maxPoints {
			return nil, fmt.Errorf("panel %d has %d points: give at most %d", i+1, len(in.Points), maxPoints)
		}
		for _, p := range in.Points {
			values.add(p.Value)
		}
	}
	colours, err := newScale(f.Palette, values, f.Scale)
	if err != nil {
		return nil, err
	}
	s := sheet{title: f.Title, columns: f.Columns, width: 285, height: 280, bar: &colourBar{colours, f.Value}}
	if len(f.Panels) > 1 {
		s.width, s.height = 220, 218
	}
	for _, in := range f.Panels {
		p := newPlot()
		p.HideAxes()
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		p.Add(newSpace(in, colours))
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	return s.figure()
}

// vector is a place in the unit cube of the axes.
type vector [3]float64

// The view: unit vectors to the right of the picture, up in it, and towards the eye.
var viewRight, viewUp, viewEye = func() (vector, vector, vector) {
	const azimuth, elevation = -60 * math.Pi / 180, 30 * math.Pi / 180
	sa, ca := math.Sincos(azimuth)
	se, ce := math.Sincos(elevation)
	return vector{-sa, ca, 0}, vector{-se * ca, -se * sa, ce}, vector{ce * ca, ce * sa, se}
}()

func (v vector) dot(w vector) float64 { return v[0]*w[0] + v[1]*w[1] + v[2]*w[2] }

// space is a box of axes with its points, the farthest first.
type space struct {
	axes   [3]plot.Axis // ranges, labels and ticks
	points []Point3
	scale  *scale
}

func newSpace(in Scatter3Panel, colours *scale) space {
	sp := space{scale: colours}
	for i, label := range []string{in.X, in.Y, in.Z} {
		s := noSpan()
		var values []float64
		for _, p := range in.Points {
			if v := (vector{p.X, p.Y, p.Z})[i]; usable(v) {
				s.add(v)
				values = append(values, v)
			}
		}
		a := &sp.axes[i]
		a.Label.Text, a.Scale = label, plot.LinearScale{}
		s = s.padded(0.06, [2]float64{}, false)
		a.Min, a.Max = s.low, s.high
		a.Tick.Marker = evenTicks{n: 5}
		if t := dataTicks(values); t != nil && len(t.Ticks(0, 0)) <= 8 {
			a.Tick.Marker = t
		}
	}
	for _, p := range in.Points {
		if usable(p.X) && usable(p.Y) && usable(p.Z) && usable(p.Value) {
			sp.points = append(sp.points, p)
		}
	}
	slices.SortStableFunc(sp.points, func(a, b Point3) int { return cmp.Compare(sp.depth(a), sp.depth(b)) })
	return sp
}

func (s space) unit(p Point3) vector {
	return vector{s.axes[0].Norm(p.X), s.axes[1].Norm(p.Y), s.axes[2].Norm(p.Z)}
}

// depth returns a point's depth, growing towards the eye.
func (s space) depth(p Point3) float64 { return s.unit(p).dot(viewEye) }

// Plot implements plot.Plotter.
func (s space) Plot(c draw.Canvas, _ *plot.Plot) {
	// The projected cube is 1.37 wide and 1.55 high; the margins hold the ticks and labels.
	left, right := 24+s.widest(2), 12+max(0.65*s.widest(1), 10)
	width, height := c.Max.X-c.Min.X, c.Max.Y-c.Min.Y
	size := min((width-left-right)/1.37, (height-22)/1.55)
	centre := c.Center().Add(vg.Point{X: (left - right) / 2, Y: 9})
	to := func(v vector) vg.Point {
		v = vector{v[0] - 0.5, v[1] - 0.5, v[2] - 0.5}
		return centre.Add(vg.Point{X: size * vg.Length(v.dot(viewRight)), Y: size * vg.Length(v.dot(viewUp))})
	}
	line := func(style draw.LineStyle, a, b vector) {
		p, q := to(a), to(b)
		c.StrokeLine2(style, p.X, p.Y, q.X, q.Y)
	}
	// The three back walls: x = 0, y = 1, z = 0, with lines at the ticks of their two axes.
	wall := draw.LineStyle{Color: pale, Width: 0.5}
	for axis, at := range (vector{0, 1, 0}) {
		corner := func(u, v float64) vector {
			var w vector
			w[axis], w[(axis+1)%3], w[(axis+2)%3] = at, u, v
			return w
		}
		c.FillPolygon(paler, []vg.Point{to(corner(0, 0)), to(corner(1, 0)), to(corner(1, 1)), to(corner(0, 1))})
		for _, u := range s.marks((axis + 1) % 3) {
			line(wall, corner(u.Value, 0), corner(u.Value, 1))
		}
		for _, v := range s.marks((axis + 2) % 3) {
			line(wall, corner(0, v.Value), corner(1, v.Value))
		}
		for k := range 4 {
			ends := [][2]float64{{0, 0}, {1, 0}, {1, 1}, {0, 1}}
			line(draw.LineStyle{Color: grey, Width: 0.5}, corner(ends[k][0], ends[k][1]), corner(ends[(k+1)%4][0],
				ends[(k+1)%4][1]))
		}
	}
	s.axisAt(c, to, 0, vector{0, 0, 0}, vector{0, -1, 0})
	s.axisAt(c, to, 1, vector{1, 0, 0}, vector{1, 0, 0})
	s.axisAt(c, to, 2, vector{0, 0, 0}, vector{-0.6, -0.6, 0})
	radius := min(4.2, max(1.6, size*0.55/vg.Length(math.Cbrt(float64(len(s.points)+1)))/4))
	for _, p := range s.points {
		near := 0.85 + 0.15*vg.Length(s.depth(p))
		stamp(&c, draw.GlyphStyle{Color: s.scale.colour(p.Value), Radius: radius * near, Shape: draw.CircleGlyph{}},
			to(s.unit(p)))
	}
}

// marks returns the labelled ticks of an axis, with values in the unit cube.
func (s space) marks(axis int) []plot.Tick {
	a := s.axes[axis]
	var out []plot.Tick
	for _, t := range a.Tick.Marker.Ticks(a.Min, a.Max) {
		if v := a.Norm(t.Value); !t.IsMinor() && v >= 0 && v <= 1 {
			out = append(out, plot.Tick{Value: v, Label: shorten(t.Label, letters(smallSize, 0, 0), 36)})
		}
	}
	return out
}

// widest returns the width of the widest tick label of an axis.
func (s space) widest(axis int) vg.Length {
	w := vg.Length(0)
	for _, t := range s.marks(axis) {
		w = max(w, letters(smallSize, 0, 0).Width(t.Label))
	}
	return w
}

// axisAt draws an edge of the box from a corner, with ticks in the given direction and the label along the edge.
func (s space) axisAt(c draw.Canvas, to func(vector) vg.Point, axis int, corner, outwards vector) {
	style := draw.LineStyle{Color: ink, Width: 0.7}
	at := func(u float64) vector {
		v := corner
		v[axis] = u
		return v
	}
	away := func(u float64, by vg.Length) vg.Point { // points outside the edge
		v, p := at(u), to(at(u))
		for i := range v {
			v[i] += outwards[i]
		}
		d := to(v).Sub(p)
		return p.Add(d.Scale(by / vg.Length(math.Hypot(float64(d.X), float64(d.Y)))))
	}
	a, b := to(at(0)), to(at(1))
	c.StrokeLine2(style, a.X, a.Y, b.X, b.Y)
	anchor := [3]draw.XAlignment{-0.65, -0.35, draw.XRight}[axis]
	words := letters(smallSize, anchor, middle)
	marks := s.marks(axis)
	every := everyNth(12, vg.Length(math.Hypot(float64(b.X-a.X), float64(b.Y-a.Y)))/vg.Length(max(1, len(marks))))
	for i, t := range marks {
		if i%every > 0 {
			continue
		}
		p, q := to(at(t.Value)), away(t.Value, 3)
		c.StrokeLine2(style, p.X, p.Y, q.X, q.Y)
		c.FillText(words, away(t.Value, [3]vg.Length{8, 8, 5}[axis]), t.Label)
	}
	angle := math.Atan2(float64(b.Y-a.Y), float64(b.X-a.X))
	label := letters(labelSize, draw.XCenter, middle)
	room := vg.Length(math.Hypot(float64(b.X-a.X), float64(b.Y-a.Y))) + 20
	c.FillText(turned(label, angle), away(0.5, [3]vg.Length{22, 22, 14 + s.widest(2)}[axis]),
		shorten(s.axes[axis].Label.Text, label, room))
}
