// Package letters draws the text of figures in Liberation Sans. An embedded bitmap font supplies missing letters, such
// as Chinese, Japanese and Korean ones, so that labels do not depend on the machine's fonts.
package letters

import (
	"image"
	"math"

	"github.com/hajimehoshi/bitmapfont/v3"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// pixels is the em of the bitmap font, the height of its letters.
const pixels = 12

// Handler draws text. In SVG files all text stays text, drawn with the viewer's fonts.
type Handler struct{ text.Plain }

// piece is a part of a text in one font.
type piece struct {
	text   string
	bitmap bool
	width  vg.Length
}

// pieces splits a text by font. A text that the usual font covers is one piece.
func (h Handler) pieces(txt string, fnt font.Font) []piece {
	face := h.Fonts.Lookup(fnt, fnt.Size)
	var buffer sfnt.Buffer
	var out []piece

	for _, r := range txt {
		index, err := face.Face.GlyphIndex(&buffer, r)
		p := piece{text: string(r)}
		if advance, ok := bitmapfont.FaceSC.GlyphAdvance(r); ok && (err != nil || index == 0) {
			p.bitmap, p.width = true, fnt.Size*vg.Length(advance.Ceil())/pixels
		}
		if n := len(out); n > 0 && out[n-1].bitmap == p.bitmap {
			out[n-1].text += p.text
			out[n-1].width += p.width
		} else {
			out = append(out, p)
		}
	}

	for i := range out {
		if !out[i].bitmap {
			out[i].width = face.Width(out[i].text)
		}
	}

	return out
}

// Box implements text.Handler.
func (h Handler) Box(txt string, fnt font.Font) (width, height, depth vg.Length) {
	_, height, depth = h.Plain.Box("", fnt)
	for _, p := range h.pieces(txt, fnt) {
		width += p.width
	}
	return width, height, depth
}

// Draw implements text.Handler, for texts of one line.
func (h Handler) Draw(canvas vg.Canvas, txt string, sty text.Style, pt vg.Point) {
	list := h.pieces(txt, sty.Font)
	if len(list) == 0 || len(list) == 1 && !list[0].bitmap {
		h.Plain.Draw(canvas, txt, sty, pt)
		return
	}

	face := h.Fonts.Lookup(sty.Font, sty.Font.Size)
	width, height, _ := h.Box(txt, sty.Font)
	if inner, ok := canvas.(*draw.Canvas); ok {
		if _, ok := inner.Canvas.(*vgsvg.Canvas); ok {
			list = []piece{{text: txt}}
		}
	}

	canvas.Push()
	defer canvas.Pop()
	canvas.SetColor(sty.Color)
	canvas.Rotate(sty.Rotation)
	sin, cos := math.Sincos(sty.Rotation)
	at := vg.Point{X: pt.Y*vg.Length(sin) + pt.X*vg.Length(cos), Y: pt.Y*vg.Length(cos) - pt.X*vg.Length(sin)}
	at.X += vg.Length(sty.XAlign) * width
	at.Y += height*vg.Length(sty.YAlign) - face.Extents().Ascent + sty.Font.Size
	for _, p := range list {
		if p.bitmap {
			paint(canvas, p.text, at, sty.Font.Size/pixels)
		} else {
			canvas.FillString(face, at, p.text)
		}
		at.X += p.width
	}
}

// paint fills the pixels of letters, with the origin of the first letter at the given point.
func paint(c vg.Canvas, txt string, at vg.Point, size vg.Length) {
	dot := fixed.Point26_6{}
	for _, r := range txt {
		where, mask, from, advance, ok := bitmapfont.FaceSC.Glyph(dot, r)
		if ok {
			fill(c, where, mask, from, at, size)
		}
		dot.X += advance
	}
}

// fill fills the pixels of a mask and joins horizontal neighbours.
func fill(canvas vg.Canvas, where image.Rectangle, mask image.Image, from image.Point, at vg.Point, size vg.Length) {
	inked := func(x, y int) bool {
		if x >= where.Max.X {
			return false
		}
		_, _, _, a := mask.At(from.X+x-where.Min.X, from.Y+y-where.Min.Y).RGBA()
		return a > 0
	}

	for y := where.Min.Y; y < where.Max.Y; y++ {
		for x := where.Min.X; x < where.Max.X; x++ {
			begin := x
			for inked(x, y) {
				x++
			}
			if x > begin {
				low := vg.Point{X: at.X + size*vg.Length(begin), Y: at.Y - size*vg.Length(y+1)}
				canvas.Fill(vg.Rectangle{Min: low, Max: vg.Point{X: at.X + size*vg.Length(x), Y: low.Y + size}}.Path())
			}
		}
	}
}
