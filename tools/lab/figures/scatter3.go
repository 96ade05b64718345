package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/runtime/convert"
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
	Title  string
	Value  string // meaning of the colour
	Panels []Scatter3Panel
}

func (f Scatter3) kind() (string, int) { return "scatter3", len(f.Panels) }

func (f Scatter3) draw() (*sheet, error) {
	values := noSpan()
	for i, in := range f.Panels {
		if len(in.Points) > maxPoints {
			return nil, fmt.Errorf("panel %d has %d points: give at most %d", i+1, len(in.Points), maxPoints)
		}
		for _, p := range in.Points {
			values.add(p.Value)
		}
	}

	colours, err := newScale(false, values, [2]float64{})
	if err != nil {
		return nil, err
	}

	sheet := &sheet{title: f.Title, width: 285, height: 280, bar: &colourBar{colours, f.Value}}
	if len(f.Panels) > 1 {
		sheet.width, sheet.height = 220, 218
	}

	for _, in := range f.Panels {
		p := newPlot()
		p.HideAxes()
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		p.Add(newSpace(in, colours))
		sheet.add(p, in.Title)
	}

	return sheet, nil
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
	axes   [3]plot.Axis   // ranges and labels
	marks  [3][]plot.Tick // of each axis, with values in the unit cube
	widest [3]vg.Length   // label of each axis's marks
	points []vector       // in the unit cube
	values []float64
	scale  *scale
}

func newSpace(in Scatter3Panel, colours *scale) space {
	sp := space{scale: colours}
	points := slices.DeleteFunc(slices.Clone(in.Points), func(p Point3) bool {
		return !usable(p.X) || !usable(p.Y) || !usable(p.Z) || !usable(p.Value)
	})
	style := letters(smallSize, 0, 0)
	for k, label := range []string{in.X, in.Y, in.Z} {
		s := noSpan()
		values := convert.Slice(points, func(p Point3) float64 { return vector{p.X, p.Y, p.Z}[k] })
		s.add(values...)
		s = s.padded(0.06, Axis{})
		a := &sp.axes[k]
		a.Label.Text, a.Scale, a.Min, a.Max = label, plot.LinearScale{}, s.low, s.high
		ticks := plot.Ticker(evenTicks{n: 5})
		if t := dataTicks(values); t != nil && len(t.Ticks(0, 0)) <= 8 {
			ticks = t
		}

		for _, t := range ticks.Ticks(a.Min, a.Max) {
			if v := a.Norm(t.Value); !t.IsMinor() && v >= 0 && v <= 1 {
				text := shorten(t.Label, style, 36)
				sp.widest[k] = max(sp.widest[k], style.Width(text))
				sp.marks[k] = append(sp.marks[k], plot.Tick{Value: v, Label: text})
			}
		}
	}

	unit := func(p Point3) vector {
		return vector{sp.axes[0].Norm(p.X), sp.axes[1].Norm(p.Y), sp.axes[2].Norm(p.Z)}
	}
	slices.SortStableFunc(points, func(a, b Point3) int {
		return cmp.Compare(unit(a).dot(viewEye), unit(b).dot(viewEye))
	})
	for _, p := range points {
		sp.points, sp.values = append(sp.points, unit(p)), append(sp.values, p.Value)
	}

	return sp
}

// Plot implements plot.Plotter.
func (s space) Plot(canvas draw.Canvas, _ *plot.Plot) {
	// The projected cube is 1.37 wide and 1.55 high; the margins hold the ticks and labels.
	left, right := 24+s.widest[2], 12+max(0.65*s.widest[1], 10)
	size := min((canvas.Max.X-canvas.Min.X-left-right)/1.37, (canvas.Max.Y-canvas.Min.Y-22)/1.55)
	centre := canvas.Center().Add(vg.Point{X: (left - right) / 2, Y: 9})
	to := func(v vector) vg.Point {
		v = vector{v[0] - 0.5, v[1] - 0.5, v[2] - 0.5}
		return centre.Add(vg.Point{X: size * vg.Length(v.dot(viewRight)), Y: size * vg.Length(v.dot(viewUp))})
	}

	// The three back walls: x = 0, y = 1, z = 0, with lines at the ticks of their two axes.
	wall := draw.LineStyle{Color: pale, Width: 0.5}
	for axis, at := range (vector{0, 1, 0}) {
		corner := func(u, v float64) vg.Point {
			var w vector
			w[axis], w[(axis+1)%3], w[(axis+2)%3] = at, u, v
			return to(w)
		}

		corners := []vg.Point{corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)}
		canvas.FillPolygon(paler, corners)
		for _, u := range s.marks[(axis+1)%3] {
			canvas.StrokeLines(wall, []vg.Point{corner(u.Value, 0), corner(u.Value, 1)})
		}

		for _, v := range s.marks[(axis+2)%3] {
			canvas.StrokeLines(wall, []vg.Point{corner(0, v.Value), corner(1, v.Value)})
		}

		canvas.StrokeLines(draw.LineStyle{Color: grey, Width: 0.5}, append(corners, corners[0]))
	}

	s.axis(canvas, to, 0, vector{0, 0, 0}, vector{0, -1, 0})
	s.axis(canvas, to, 1, vector{1, 0, 0}, vector{1, 0, 0})
	s.axis(canvas, to, 2, vector{0, 0, 0}, vector{-0.6, -0.6, 0})
	radius := min(4.2, max(1.6, size*0.55/vg.Length(math.Cbrt(float64(len(s.points)+1)))/4))
	for i, p := range s.points {
		near := 0.85 + 0.15*vg.Length(p.dot(viewEye))
		stamp(&canvas, draw.GlyphStyle{Color: s.scale.colour(s.values[i]), Radius: radius * near,
			Shape: draw.CircleGlyph{}}, to(p))
	}
}

// axis draws an edge of the box from a corner, with ticks in the given direction and the label along the edge.
func (s space) axis(canvas draw.Canvas, to func(vector) vg.Point, axis int, corner, outwards vector) {
	style := draw.LineStyle{Color: ink, Width: 0.7}
	start := to(corner)
	corner[axis] = 1
	edge := to(corner).Sub(start)
	for i := range corner {
		corner[i] += outwards[i]
	}

	out := to(corner).Sub(start).Sub(edge)
	length := func(p vg.Point) vg.Length { return vg.Length(math.Hypot(float64(p.X), float64(p.Y))) }
	out = out.Scale(1 / length(out))
	away := func(u float64, by vg.Length) vg.Point { // points outside the edge
		return start.Add(edge.Scale(vg.Length(u))).Add(out.Scale(by))
	}
	canvas.StrokeLines(style, []vg.Point{start, start.Add(edge)})
	words := letters(smallSize, [3]draw.XAlignment{-0.65, -0.35, draw.XRight}[axis], middle)
	every := everyNth(12, length(edge)/vg.Length(max(1, len(s.marks[axis]))))
	for i, t := range s.marks[axis] {
		if i%every == 0 {
			canvas.StrokeLines(style, []vg.Point{away(t.Value, 0), away(t.Value, 3)})
			canvas.FillText(words, away(t.Value, [3]vg.Length{8, 8, 5}[axis]), t.Label)
		}
	}

	label := turned(letters(labelSize, draw.XCenter, middle), math.Atan2(float64(edge.Y), float64(edge.X)))
	canvas.FillText(label, away(0.5, [3]vg.Length{22, 22, 14 + s.widest[2]}[axis]),
		shorten(s.axes[axis].Label.Text, label, length(edge)+20))
}
