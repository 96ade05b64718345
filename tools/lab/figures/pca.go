package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/tools/lab/figures/embedding"
)

// PCAPanel is the features of one backbone.
type PCAPanel struct {
	Title  string
	Images [][]float64 // [N][D] unit rows
	Labels []int       // [N] the class of each image
	Before [][]float64 // [C][D] text features before training
	After  [][]float64 // [C][D] text features after training
}

// PCA shows image features in the plane of their first two principal components, coloured by class, and each class's
// text feature moving from its place before training to its place after training, as in GGTPC's figure 1. PerClass
// draws a panel for every class, as in that figure.
type PCA struct {
	Title    string
	Columns  int // of panels; 0: automatic
	Classes  []string
	PerClass bool
	Panels   []PCAPanel
}

// Draw implements Drawer.
func (f PCA) Draw() (*Figure, error) {
	return drawn("PCA", len(f.Panels), f.draw)
}

func (f PCA) draw() (*Figure, error) {
	s := sheet{title: f.Title, columns: f.Columns, width: 260, height: 215}
	if n := len(f.Panels); n > 1 || f.PerClass && len(f.Classes) > 1 {
		s.width, s.height = 165, 140
	}
	for i, in := range f.Panels {
		plane, err := f.plane(in)
		if err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}
		if !f.PerClass {
			s.panels = append(s.panels, plane.panel(in.Title, s.width, s.height, -1))
			continue
		}
		if len(f.Classes) > maxPanels {
			return nil, fmt.Errorf("panel %d: %d classes are too many for a panel each: give at most %d", i+1,
				len(f.Classes), maxPanels)
		}
		for c, name := range f.Classes {
			title := name
			if in.Title != "" {
				title = in.Title + ": " + name
			}
			s.panels = append(s.panels, plane.panel(title, s.width, s.height, c))
		}
	}
	if f.PerClass {
		s.legend = legend{
			glyphEntry("image features", draw.GlyphStyle{Color: hues[0], Radius: 2.4, Shape: draw.CircleGlyph{}}),
			glyphEntry("their mean", meanGlyph), glyphEntry("text before", beforeGlyph), glyphEntry("text after",
				afterGlyph),
		}
		return s.figure()
	}
	for c, name := range f.Classes {
		s.legend = append(s.legend, glyphEntry(name, seriesStyle(c).glyph(3)))
	}
	s.legend = append(s.legend,
		glyphEntry("text before", draw.GlyphStyle{Color: grey, Radius: 4, Shape: hollowStar{}}),
		glyphEntry("text after", draw.GlyphStyle{Color: grey, Radius: 4, Shape: star()}))
	return s.figure()
}

// Glyphs of panels for one class, in the colours of GGTPC's figure but without its shades.
var (
	meanGlyph   = draw.GlyphStyle{Color: hues[7], Radius: 2.6, Shape: draw.CircleGlyph{}}
	beforeGlyph = draw.GlyphStyle{Color: hues[1], Radius: 4.4, Shape: shapes[5]}
	afterGlyph  = draw.GlyphStyle{Color: hues[2], Radius: 4.4, Shape: shapes[5]}
)

// plane is the features of a panel in two coordinates.
type plane struct {
	images        [][2]float64
	labels        []int
	before, after [][2]float64
	explained     [2]float64
}

func (f PCA) plane(in PCAPanel) (*plane, error) {
	switch {
	case len(in.Labels) != len(in.Images):
		return nil, fmt.Errorf("%d labels for %d images", len(in.Labels), len(in.Images))
	case len(in.Before) != len(f.Classes) || len(in.After) != len(f.Classes):
		return nil, fmt.Errorf("%d text features before and %d after for %d classes", len(in.Before), len(in.After),
			len(f.Classes))
	}
	for i, c := range in.Labels {
		if c < 0 || c >= len(f.Classes) {
			return nil, fmt.Errorf("image %d has class %d of %d", i, c, len(f.Classes))
		}
	}
	basis, err := embedding.PrincipalComponents(in.Images)
	if err != nil {
		return nil, err
	}
	out := &plane{labels: in.Labels, explained: basis.Explained}
	for _, part := range []struct {
		rows [][]float64
		to   *[][2]float64
		what string
	}{{in.Images, &out.images, "image"}, {in.Before, &out.before, "text before"}, {in.After, &out.after,
		"text after"}} {
		for i, r := range part.rows {
			at, err := basis.Project(r)
			if err == nil && !(usable(at[0]) && usable(at[1])) {
				err = fmt.Errorf("holds what is not a number")
			}
			if err != nil {
				return nil, fmt.Errorf("%s %d: %w", part.what, i, err)
			}
			*part.to = append(*part.to, at)
		}
	}
	return out, nil
}

// panel draws all classes, or only the given class.
func (f *plane) panel(title string, width, height vg.Length, class int) *panel {
	p := newPlot()
	x, y := noSpan(), noSpan()
	for _, list := range [][][2]float64{f.images, f.before, f.after} {
		for _, at := range list {
			x.add(at[0])
			y.add(at[1])
		}
	}
	x, y = x.padded(0.06, [2]float64{}, false), y.padded(0.06, [2]float64{}, false)
	Axis{Label: fmt.Sprintf("component 1 (%.1f %%)", 100*f.explained[0])}.apply(&p.X, x, 4)
	Axis{Label: fmt.Sprintf("component 2 (%.1f %%)", 100*f.explained[1])}.apply(&p.Y, y, 4)
	equalScales(p, width, height)
	p.Add(gridLines{x: true, y: true}, planePoints{f, class})
	return &panel{Plot: p, title: title}
}

// planePoints draws the points of a plane, of one class or, with a negative class, of all.
type planePoints struct {
	*plane
	class int
}

// Plot implements plot.Plotter.
func (f planePoints) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	at := func(v [2]float64) vg.Point { return vg.Point{X: toX(v[0]), Y: toY(v[1])} }
	var sum [2]float64
	n := 0.0
	for i, v := range f.images {
		if f.class < 0 {
			glyph := seriesStyle(f.labels[i]).glyph(cloudRadius(len(f.images)))
			glyph.Color = faint(seriesStyle(f.labels[i]).color, 150)
			c.DrawGlyphNoClip(glyph, at(v))
		} else if f.labels[i] == f.class {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: faint(hues[0], 120), Radius: cloudRadius(len(f.images)),
				Shape: draw.CircleGlyph{}}, at(v))
			sum[0] += v[0]
			sum[1] += v[1]
			n++
		}
	}
	if f.class >= 0 {
		arrow(c, at(f.before[f.class]), at(f.after[f.class]))
		stamp(&c, beforeGlyph, at(f.before[f.class]))
		stamp(&c, afterGlyph, at(f.after[f.class]))
		if n > 0 { // on top, because training aims at this place
			stamp(&c, meanGlyph, at([2]float64{sum[0] / n, sum[1] / n}))
		}
		return
	}
	for k := range f.before {
		arrow(c, at(f.before[k]), at(f.after[k]))
	}
	for k := range f.before {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: seriesStyle(k).color, Radius: 5, Shape: hollowStar{}}, at(f.before[k]))
		stamp(&c, draw.GlyphStyle{Color: seriesStyle(k).color, Radius: 5, Shape: star()}, at(f.after[k]))
	}
}

// arrow draws an arrow between two different places.
func arrow(c draw.Canvas, from, to vg.Point) {
	d := to.Sub(from)
	length := math.Hypot(float64(d.X), float64(d.Y))
	if length < 8 {
		return
	}
	d = d.Scale(vg.Length(1 / length))
	side := vg.Point{X: -d.Y, Y: d.X}
	tip := to.Sub(d.Scale(4))
	c.StrokeLines(draw.LineStyle{Color: ink, Width: 0.8}, []vg.Point{from, tip})
	back := tip.Sub(d.Scale(5))
	c.FillPolygon(ink, []vg.Point{tip, back.Add(side.Scale(2)), back.Sub(side.Scale(2))})
}

// hollowStar is a star with a coloured edge.
type hollowStar struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (hollowStar) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	inner := style
	inner.Color, inner.Radius = paler, 0.62*style.Radius
	star().DrawGlyph(c, style, at)
	star().DrawGlyph(c, inner, at)
}
