package letters

import (
	"bytes"
	"image"
	"image/color"
	"math"
	"strings"
	"testing"

	_ "gonum.org/v1/plot" // fills the cache of fonts
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

var style = text.Style{Color: color.Black, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: 12},
	Handler: Handler{text.Plain{Fonts: font.DefaultCache}}, XAlign: draw.XCenter, YAlign: -0.41}

// ink draws a text in the middle of an image. It returns the bounding rectangle and the number of its dark pixels.
func ink(txt string, turn float64) (image.Rectangle, int) {
	s := style
	s.Rotation = turn
	canvas := vgimg.NewWith(vgimg.UseWH(200, 200), vgimg.UseDPI(72), vgimg.UseBackgroundColor(color.White))
	c := draw.New(canvas)
	c.FillText(s, vg.Point{X: 100, Y: 100}, txt)
	img := canvas.Image()
	var box image.Rectangle
	n := 0
	for y := range 200 {
		for x := range 200 {
			if r, _, _, _ := img.At(x, y).RGBA(); r < 0x8000 {
				box = box.Union(image.Rect(x, y, x+1, y+1))
				n++
			}
		}
	}
	return box, n
}

// A Chinese, Japanese or Korean letter is an em wide and high, 12 points, and stands at the anchor of its text, upright
// and rotated.
func TestLettersThatTheFontDoesNotHave(t *testing.T) {
	for _, txt := range []string{"猫狗鸟马鱼", "ねこいぬと", "고양이와개"} {
		if w := style.Width(txt); w != 5*12 {
			t.Errorf("%s is %v points wide; five letters are 60", txt, w)
		}
		flat, n := ink(txt, 0)
		if flat.Dx() < 50 || flat.Dx() > 60 || flat.Dy() < 8 || flat.Dy() > 13 || n < 100 {
			t.Errorf("%s covers %v with %d pixels", txt, flat, n)
		}
		up, m := ink(txt, math.Pi/2)
		if up.Dy() < 50 || up.Dy() > 60 || up.Dx() > 13 || m < n/2 {
			t.Errorf("%s turned covers %v with %d pixels", txt, up, m)
		}
		for _, box := range []image.Rectangle{flat, up} {
			if c := box.Min.Add(box.Max).Div(2); abs(c.X-100) > 4 || abs(c.Y-100) > 4 {
				t.Errorf("%s has its middle at %v", txt, c)
			}
		}
	}
}

func abs(v int) int { return max(v, -v) }

// The usual font alone draws its own letters, and a mixed text is as wide as its parts.
func TestMixedText(t *testing.T) {
	plain := style
	plain.Handler = text.Plain{Fonts: font.DefaultCache}
	for _, txt := range []string{"accuracy (%)", "Größe β ≤ 1", "кот"} {
		if style.Width(txt) != plain.Width(txt) {
			t.Errorf("%q is %v wide, not %v", txt, style.Width(txt), plain.Width(txt))
		}
	}
	if got, want := style.Width("cat 猫"), plain.Width("cat ")+12; math.Abs(float64(got-want)) > 1e-6 {
		t.Errorf("mixed text is %v wide, not %v", got, want)
	}
}

func TestSVGKeepsText(t *testing.T) {
	canvas := vgsvg.New(200, 200)
	c := draw.New(canvas)
	c.FillText(style, vg.Point{X: 100, Y: 100}, "cat 猫")
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil || !strings.Contains(b.String(), ">cat 猫<") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
