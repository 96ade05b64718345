package figures

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"promptfed/runtime/atomicfile"
)

// Drawer is a kind of figure with its numbers.
type Drawer interface {
	kind() (name string, panels int)
	draw() (*sheet, error)
}

// Draw lays out a figure. The error is one line that names the kind, the panel and the defect of the numbers.
func Draw(d Drawer) (*Figure, error) {
	kind, panels := d.kind()
	var figure *Figure
	s, err := (*sheet)(nil), ErrEmpty
	if panels > 0 {
		s, err = d.draw()
	}

	if err == nil {
		figure, err = s.figure()
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}

	return figure, nil
}

// ErrEmpty is the error for a figure without panels or rows. A caller may take it for nothing to draw.
var ErrEmpty = errors.New("there is no panel: give at least one")

// Figure is a laid-out figure, which can be painted in any format.
type Figure struct {
	width, height vg.Length // points, 72 to the inch
	title         string    // text alternative of the image
	paint         func(draw.Canvas)
	sheet         *sheet
}

// pngDPI is twice the usual resolution of screens.
const pngDPI = 192

// fallback are fonts with the widths of Liberation Sans, for machines without it.
const fallback = "Liberation Sans,Arial,Helvetica,sans-serif"

// SVG returns the figure as one svg element without an XML declaration, so that a web page can include it. Text stays
// text.
func (f *Figure) SVG() ([]byte, error) {
	canvas := vgsvg.New(f.width, f.height)
	f.paint(draw.New(canvas))
	var raw bytes.Buffer
	if _, err := canvas.WriteTo(&raw); err != nil {
		return nil, err
	}

	_, body, ok := bytes.Cut(raw.Bytes(), []byte("<svg "))
	head, rest, closed := bytes.Cut(body, []byte(">"))
	if !ok || !closed {
		return nil, fmt.Errorf("figures: the drawing library wrote no svg element")
	}

	var out, title bytes.Buffer
	if err := xml.EscapeText(&title, []byte(f.title)); err != nil {
		return nil, err
	}

	fmt.Fprintf(&out, `<svg role="img" %s>`+"\n<title>%s</title>", head, title.Bytes())
	out.Write(bytes.ReplaceAll(rest, []byte("font-family:Liberation Sans;"), []byte("font-family:"+fallback+";")))
	return out.Bytes(), nil
}

// darkRules are the CSS rules of an SVG file for dark pages.
var darkRules = func() string {
	var out strings.Builder
	out.WriteString("<style>@media (prefers-color-scheme: dark) {" +
		` path[style*="fill:#FFFFFF"] { fill: #11151c !important }`)
	rules := [][2]string{{"#222222", "#e7eaf0"}, {"#888888", "#76829a"}, {"#E4E4E4", "#2b3341"}, {"#F4F4F4", "#1c232e"}}
	for _, palette := range [][2][]string{LineColours, GroupColours} {
		for i, light := range palette[0] {
			rules = append(rules, [2]string{strings.ToUpper(light), palette[1][i]})
		}
	}
	for _, r := range rules {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&out, ` [style*="%[1]s:%[2]s"] { %[1]s: %[3]s !important }`, property, r[0], r[1])
		}
	}
	out.WriteString(" }</style>")
	return out.String()
}()

// PhoneWidth is the width of figures for phones, in points.
const PhoneWidth = 330

// PageSVG returns the SVG for a page, without a title and with colours that follow those of the page, and its width in
// points. A width above 0 asks for as many columns of panels as fit into it, at least one; the SVG is nil if the figure
// does not become narrower.
func (f *Figure) PageSVG(width float64) (svg []byte, points float64, err error) {
	shown, err := f.sheet.forPage(vg.Length(width))
	if err != nil || shown == nil {
		return nil, 0, err
	}
	svg, err = shown.SVG()
	return bytes.Replace(svg, []byte("</title>"), []byte("</title>"+darkRules), 1), shown.width.Points(), err
}

// PNG returns the figure as an image of 192 dots per inch.
func (f *Figure) PNG() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(pngDPI))
	f.paint(draw.New(canvas))
	var out bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(&out)
	return out.Bytes(), err
}

// Save writes dir/name.png and dir/name.svg and creates dir if necessary. It never leaves a half-written file.
func Save(f *Figure, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	for ext, encode := range map[string]func() ([]byte, error){".png": f.PNG, ".svg": f.SVG} {
		path := filepath.Join(dir, name+ext)
		data, err := encode()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := atomicfile.Write(path, atomicfile.Bytes(data)); err != nil {
			return err
		}
	}

	return nil
}
