package figures

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"testing"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// written is a text on a figure, with the corners around its capitals.
type written struct {
	text    string
	corners [4]vg.Point
}

// textCanvas records only the texts drawn on it.
type textCanvas struct {
	to    []affine
	texts []written
	bad   error // the first coordinate that is not a number
}

// affine maps (x, y) to (a x + c y + e, b x + d y + f).
type affine struct{ a, b, c, d, e, f float64 }

func (m affine) at(x, y float64) vg.Point {
	return vg.Point{X: vg.Length(m.a*x + m.c*y + m.e), Y: vg.Length(m.b*x + m.d*y + m.f)}
}

func (m affine) times(n affine) affine {
	return affine{m.a*n.a + m.c*n.b, m.b*n.a + m.d*n.b, m.a*n.c + m.c*n.d, m.b*n.c + m.d*n.d, m.a*n.e + m.c*n.f + m.e,
		m.b*n.e + m.d*n.f + m.f}
}

func (c *textCanvas) top() *affine                        { return &c.to[len(c.to)-1] }
func (c *textCanvas) SetLineWidth(vg.Length)              {}
func (c *textCanvas) SetLineDash([]vg.Length, vg.Length)  {}
func (c *textCanvas) SetColor(color.Color)                {}
func (c *textCanvas) Push()                               { c.to = append(c.to, *c.top()) }
func (c *textCanvas) Pop()                                { c.to = c.to[:len(c.to)-1] }
func (c *textCanvas) DrawImage(vg.Rectangle, image.Image) {}
func (c *textCanvas) Scale(x, y float64)                  { *c.top() = c.top().times(affine{a: x, d: y}) }
func (c *textCanvas) Translate(p vg.Point) {
	*c.top() = c.top().times(affine{a: 1, d: 1, e: float64(p.X), f: float64(p.Y)})
}

func (c *textCanvas) Rotate(angle float64) {
	sin, cos := math.Sincos(angle)
	*c.top() = c.top().times(affine{a: cos, b: sin, c: -sin, d: cos})
}

func (c *textCanvas) Stroke(p vg.Path) { c.path(p) }
func (c *textCanvas) Fill(p vg.Path)   { c.path(p) }

func (c *textCanvas) path(p vg.Path) {
	for _, part := range p {
		for _, v := range []vg.Length{part.Pos.X, part.Pos.Y, part.Radius} {
			if !(math.Abs(float64(v)) < 1e5) && c.bad == nil {
				c.bad = fmt.Errorf("a path goes through %v", part.Pos)
			}
		}
	}
}

func (c *textCanvas) FillString(f font.Face, p vg.Point, text string) {
	x, y, w, h := float64(p.X), float64(p.Y), float64(f.Width(text)), 0.7*float64(f.Font.Size)
	m := c.top()
	c.texts = append(c.texts, written{text, [4]vg.Point{m.at(x, y), m.at(x+w, y), m.at(x+w, y+h), m.at(x, y+h)}})
}

// textsOf draws a figure and returns its texts.
func textsOf(f *Figure) ([]written, error) {
	c := &textCanvas{to: []affine{{a: 1, d: 1}}}
	f.paint(draw.NewCanvas(c, f.width, f.height))
	return c.texts, c.bad
}

// apart reports whether a side of one of two rectangles separates them.
func apart(a, b written) bool {
	for _, r := range []written{a, b} {
		for i := range 2 {
			axis := r.corners[i+1].Sub(r.corners[i])
			reach := func(w written) (low, high vg.Length) {
				low, high = vg.Length(math.Inf(1)), vg.Length(math.Inf(-1))
				for _, p := range w.corners {
					low, high = min(low, p.Dot(axis)), max(high, p.Dot(axis))
				}
				return low, high
			}
			lowA, highA := reach(a)
			lowB, highB := reach(b)
			if highA <= lowB || highB <= lowA {
				return true
			}
		}
	}
	return false
}

func (w written) inside(f *Figure) bool {
	for _, p := range w.corners {
		if p.X < 0 || p.Y < 0 || p.X > f.width || p.Y > f.height {
			return false
		}
	}
	return true
}

// checked draws a figure. No two of its texts may overlap, none may leave it, and it has at least so many.
func checked(t *testing.T, d Drawer, least int) *Figure {
	t.Helper()
	f, err := Draw(d)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := textsOf(f)
	if err != nil || len(texts) < least {
		t.Errorf("%d texts, %v", len(texts), err)
	}
	for i, a := range texts {
		if !a.inside(f) {
			t.Errorf("%q leaves the figure", a.text)
		}
		for _, b := range texts[:i] {
			if !apart(a, b) {
				t.Errorf("%q and %q overlap", a.text, b.text)
			}
		}
	}
	return f
}

// apart detects overlaps, also of rotated texts.
func TestApart(t *testing.T) {
	box := func(x, y, w, h, angle float64) written {
		sin, cos := math.Sincos(angle)
		m := affine{cos, sin, -sin, cos, x, y}
		return written{"", [4]vg.Point{m.at(0, 0), m.at(w, 0), m.at(w, h), m.at(0, h)}}
	}
	a := box(0, 0, 10, 2, 0)
	for _, c := range []struct {
		other written
		want  bool
	}{{box(9, 1, 10, 2, 0), false}, {box(11, 0, 5, 2, 0), true}, {box(0, 3, 10, 2, 0), true},
		{box(5, -3, 10, 1, math.Pi/2), false}, {box(10, 3, 10, 1, -math.Pi/4), true}, {box(8, 3, 10, 1, -math.Pi/4),
			false}} {
		if apart(a, c.other) != c.want || apart(c.other, a) != c.want {
			t.Errorf("%v: apart is not %v", c.other.corners, c.want)
		}
	}
}
