package figures

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// entry is one row of a legend: a small sample and its meaning.
type entry struct {
	label  string
	room   vg.Length           // of the sample
	sample func(c draw.Canvas) // the canvas is the sample's rectangle
}

// legend lists entries, beside a single panel or in rows above several. It shows at most maxEntries.
type legend []entry

const (
	maxEntries           = 36
	rowHeight  vg.Length = 12
	labelRoom  vg.Length = 170 // for the text of an entry
	sampleGap  vg.Length = 4
	entryGap   vg.Length = 12
)

var legendStyle = letters(tickSize, draw.XLeft, middle)

// listed returns the visible entries with shortened labels. A last entry counts the omitted ones.
func (l legend) listed() []entry {
	shown := append([]entry(nil), l...)
	if n := len(l); n > maxEntries {
		shown = append(shown[:maxEntries-1:maxEntries-1], entry{label: fmt.Sprintf("and %d more", n-maxEntries+1),
			sample: func(draw.Canvas) {}})
	}
	for i := range shown {
		shown[i].label = shorten(shown[i].label, legendStyle, labelRoom)
	}
	return shown
}

func (e entry) width() vg.Length { return e.room + sampleGap + legendStyle.Width(e.label) }

func (l legend) widest() vg.Length {
	w := vg.Length(0)
	for _, e := range l.aligned() {
		w = max(w, e.width())
	}
	return w
}

// aligned returns the listed entries for one column, all samples as wide as the widest.
func (l legend) aligned() []entry {
	list, room := l.listed(), vg.Length(0)
	for _, e := range list {
		room = max(room, e.room)
	}
	for i := range list {
		list[i].room = room
	}
	return list
}

// fits reports whether the legend can stand beside a panel of the given height without being much higher.
func (l legend) fits(height vg.Length) bool {
	return vg.Length(len(l.listed()))*rowHeight <= height+2*rowHeight
}

// beside returns the size of the legend in one column.
func (l legend) beside() vg.Point {
	if len(l) == 0 {
		return vg.Point{}
	}
	return vg.Point{X: l.widest() + entryGap, Y: vg.Length(len(l.listed()))*rowHeight + 8}
}

// rows breaks the entries into rows of the given width.
func (l legend) rows(width vg.Length) [][]entry {
	var rows [][]entry
	room := vg.Length(0)
	for _, e := range l.listed() {
		w := e.width() + entryGap
		if len(rows) == 0 || room+w-entryGap > width {
			rows, room = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		room += w
	}
	return rows
}

// above returns the size of the legend in rows.
func (l legend) above(width vg.Length) vg.Point {
	if len(l) == 0 {
		return vg.Point{}
	}
	return vg.Point{X: width, Y: vg.Length(len(l.rows(width)))*rowHeight + 4}
}

func (l legend) paintBeside(c draw.Canvas, at vg.Point) {
	for i, e := range l.aligned() {
		e.paint(c, vg.Point{X: at.X + entryGap, Y: at.Y - vg.Length(i)*rowHeight - 8})
	}
}

func (l legend) paintAbove(c draw.Canvas, at vg.Point, width vg.Length) {
	for i, row := range l.rows(width) {
		room := -entryGap
		for _, e := range row {
			room += e.width() + entryGap
		}
		x := at.X + (width-room)/2
		for _, e := range row {
			e.paint(c, vg.Point{X: x, Y: at.Y - vg.Length(i)*rowHeight})
			x += e.width() + entryGap
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
