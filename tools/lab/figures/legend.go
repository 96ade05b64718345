package figures

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// entry is one row of a legend: a small sample and its meaning.
type entry struct {
	label  string
	room   vg.Length           // of the sample
	sample func(c draw.Canvas) // the canvas is the sample's rectangle
}

// legend lists entries in rows above the panels. It shows at most maxEntries.
type legend []entry

const (
	maxEntries           = 36
	rowHeight  vg.Length = 12
	labelRoom  vg.Length = 170 // for the text of an entry
	sampleGap  vg.Length = 4
	entryGap   vg.Length = 12
)

var legendStyle = letters(tickSize, draw.XLeft, middle)

func (e entry) width() vg.Length { return e.room + sampleGap + legendStyle.Width(e.label) + entryGap }

// rows breaks the entries into rows, with shortened labels and a last entry that counts the omitted ones. The rows have
// the given width, or as much as one entry needs.
func (l legend) rows(width vg.Length) (rows [][]entry, widest vg.Length) {
	shown := slices.Clone(l)
	if n := len(l); n > maxEntries {
		shown = append(shown[:maxEntries-1], entry{label: fmt.Sprintf("and %d more", n-maxEntries+1),
			sample: func(draw.Canvas) {}})
	}

	for i := range shown {
		shown[i].label = shorten(shown[i].label, legendStyle, labelRoom)
		widest = max(widest, shown[i].width()-entryGap)
	}

	width = max(width, widest)
	room := vg.Length(0)
	for _, e := range shown {
		if len(rows) == 0 || room+e.width()-entryGap > width {
			rows, room = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		room += e.width()
	}

	return rows, width
}

// paintRows draws rows of entries below a point, each in the middle of the width.
func paintRows(c draw.Canvas, rows [][]entry, at vg.Point, width vg.Length) {
	for i, row := range rows {
		x := at.X + (width+entryGap)/2
		for _, e := range row {
			x -= e.width() / 2
		}
		for _, e := range row {
			e.paint(c, vg.Point{X: x, Y: at.Y - vg.Length(i)*rowHeight})
			x += e.width()
		}
	}
}

// paint draws the entry below and to the right of a point.
func (e entry) paint(c draw.Canvas, at vg.Point) {
	sample := draw.Canvas{Canvas: c.Canvas}
	sample.Min, sample.Max = vg.Point{X: at.X, Y: at.Y - rowHeight + 2}, vg.Point{X: at.X + e.room, Y: at.Y - 2}
	e.sample(sample)
	c.FillText(legendStyle, vg.Point{X: sample.Max.X + sampleGap, Y: at.Y - rowHeight/2}, e.label)
}

// lineEntry returns an entry with a line and its marker; without a shape only the line.
func lineEntry(label string, line draw.LineStyle, glyph draw.GlyphStyle) entry {
	return entry{label, 24, func(c draw.Canvas) {
		y := c.Center().Y
		c.StrokeLine2(line, c.Min.X, y, c.Max.X, y)
		if glyph.Shape != nil {
			stamp(&c, glyph, c.Center())
		}
	}}
}

// dotEntry returns an entry with a filled circle.
func dotEntry(label string, c color.Color, radius vg.Length) entry {
	return glyphEntry(label, draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}})
}

func glyphEntry(label string, glyph draw.GlyphStyle) entry {
	return entry{label, 11, func(c draw.Canvas) { c.DrawGlyphNoClip(glyph, c.Center()) }}
}

// patchEntry returns an entry with a filled, outlined rectangle.
func patchEntry(label string, fill color.Color, outline draw.LineStyle) entry {
	return entry{label, 13, func(c draw.Canvas) {
		c.SetColor(fill)
		c.Fill(c.Rectangle.Path())
		c.SetLineStyle(outline)
		c.Stroke(c.Rectangle.Path())
	}}
}
