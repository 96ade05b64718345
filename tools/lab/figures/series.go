package figures

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/runtime/convert"
)

// LineColours are the colours of methods, or of lines where there is one method, on a light and on a dark background,
// each #rrggbb. Pages use them for their own drawings beside figures. Colour-blind readers tell them apart, and all
// have a contrast of 3 with white or with the dark page.
var LineColours = [2][]string{
	{"#0a5cc4", "#ee6a05", "#00612a", "#c667dc", "#ab0f0f", "#1796f0", "#9a319f", "#4d0f86"},
	{"#5678e1", "#c07600", "#5cc769", "#ffaeef", "#d35269", "#00daff", "#c22fc0", "#b285f6"},
}

// GroupColours are the colours of everything else, such as domains, backbones, clients, classes and terms. They are
// greys, so that nobody takes them for methods; shapes, dashes or names distinguish groups further.
var GroupColours = [2][]string{
	{"#24282f", "#4f5560", "#757b86", "#8d939d"},
	{"#f4f6fa", "#b3b8c0", "#8f949c", "#777c84"},
}

var hues, greys = parsed(LineColours[0]), parsed(GroupColours[0])

func parsed(list []string) []color.NRGBA {
	var out []color.NRGBA
	for _, text := range list {
		n, err := strconv.ParseUint(text[1:], 16, 32)
		if err != nil {
			panic(err) // a constant above
		}
		out = append(out, color.NRGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 255})
	}

	return out
}

// dashes and shapes differ in number from hues and from each other. The first 56 lines therefore all look different,
// and lines differ without colour too.
var dashes = [][]vg.Length{nil, {5, 2}, {1.5, 1.5}, {6, 2, 1.5, 2}, {9, 3}}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, radial(4, math.Pi/4, 1.2), radial(3, math.Pi/2, 1.35), radial(4, 0, 1.2),
	radial(3, -math.Pi/2, 1.35), radial(8, math.Pi/4, 1.5, 0.5), radial(8, 0, 1.5, 0.5),
}

// style is the drawing style of the i-th line or group.
type style struct {
	color  color.NRGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

func seriesStyle(i int) style {
	return style{hues[i%len(hues)], dashes[i%len(dashes)], shapes[i%len(shapes)]}
}

// groupStyle is the drawing style of the i-th group of something other than methods.
func groupStyle(i int) style {
	s := seriesStyle(i)
	s.color = greys[i%len(greys)]
	return s
}

func (l style) line(width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: width, Dashes: l.dashes}
}

func (l style) glyph(radius vg.Length) draw.GlyphStyle {
	return draw.GlyphStyle{Color: l.color, Radius: radius, Shape: l.shape}
}

// faint returns a colour with the given opacity, in 255ths.
func faint(c color.NRGBA, alpha uint8) color.NRGBA {
	c.A = alpha
	return c
}

// Colours maps labels to indices of LineColours, so that a method has one colour in all figures and on the page. Other
// labels have GroupColours in their order. Without a map, labels have LineColours in their order.
type Colours map[string]int

// MethodColours returns the colours of methods by their order. Pages with figures colour methods in the same order.
func MethodColours(methods []string) Colours {
	out := Colours{}
	for i, m := range methods {
		out[m] = i
	}
	return out
}

// numbering assigns equal numbers to equal labels, in the order of first use.
type numbering []string

func (n *numbering) of(label string) int {
	i := slices.Index(*n, label)
	if i < 0 {
		i, *n = len(*n), append(*n, label)
	}
	return i
}

// named reports whether the labels tell something: several, or one that is not empty.
func (n numbering) named() bool { return len(n) > 1 || len(n) == 1 && n[0] != "" }

// legend returns an entry for every label.
func (n numbering) legend(drawn func(label string, s style) entry) (l legend) {
	for i, label := range n {
		l = append(l, drawn(label, groupStyle(i)))
	}
	return l
}

// style returns the style of a label, the i-th of its figure.
func (c Colours) style(label string, i int) style {
	if c == nil {
		return seriesStyle(i)
	}

	s := groupStyle(i)
	if place, ok := c[label]; ok {
		s.color = hues[place%len(hues)]
	}

	return s
}

// outline is a filled glyph: the corners of a shape in a circle of radius 1.
type outline []vg.Point

// DrawGlyph implements draw.GlyphDrawer.
func (o outline) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	corners := convert.Slice(o, func(p vg.Point) vg.Point { return at.Add(p.Scale(style.Radius)) })
	c.FillPolygon(style.Color, corners)
}

// radial returns a shape with n corners at even angles, the first at the given angle, at the given radii in turns.
func radial(n int, angle float64, radii ...float64) (o outline) {
	for i := range n {
		sin, cos := math.Sincos(angle + 2*math.Pi*float64(i)/float64(n))
		o = append(o, vg.Point{X: vg.Length(cos), Y: vg.Length(sin)}.Scale(vg.Length(radii[i%len(radii)])))
	}
	return o
}

// star returns a five-pointed star with one point up.
func star() outline { return radial(10, math.Pi/2, 1.35, 0.55) }

// stamp draws a glyph with a thin white edge, which separates overlapping glyphs.
func stamp(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	edge := style
	edge.Color, edge.Radius = color.White, style.Radius+0.6
	c.DrawGlyphNoClip(edge, at)
	c.DrawGlyphNoClip(style, at)
}
