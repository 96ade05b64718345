package figures

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

// shape is a path of an SVG file.
type shape struct {
	style map[string]string
	path  string
}

// shapesOf draws a figure as SVG and returns its paths and texts.
func shapesOf(t *testing.T, d Drawer) (paths []shape, texts []string) {
	t.Helper()
	f, err := Draw(d)
	if err != nil {
		t.Fatal(err)
	}
	data, err := f.SVG()
	if err != nil {
		t.Fatal(err)
	}
	in := xml.NewDecoder(bytes.NewReader(data))
	open := ""
	for {
		token, err := in.Token()
		if err == io.EOF {
			return paths, texts
		}
		if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = e.Name.Local
			if open != "path" {
				continue
			}
			s := shape{style: map[string]string{}}
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "d":
					s.path = a.Value
				case "style":
					for _, pair := range strings.Split(a.Value, ";") {
						k, v, _ := strings.Cut(pair, ":")
						s.style[k] = v
					}
				}
			}
			paths = append(paths, s)
		case xml.CharData:
			if open == "text" {
				texts = append(texts, strings.TrimSpace(string(e)))
			}
		case xml.EndElement:
			open = ""
		}
	}
}

func count(paths []shape, is func(shape) bool) int {
	n := 0
	for _, p := range paths {
		if is(p) {
			n++
		}
	}
	return n
}

func stroked(width string) func(shape) bool {
	return func(s shape) bool { return s.style["fill"] == "none" && s.style["stroke-width"] == width }
}

// filledCircles returns a filter for filled circles of a colour #RRGGBB.
func filledCircles(colour string) func(shape) bool {
	return func(s shape) bool { return s.style["fill"] == colour && strings.Contains(s.path, "A") }
}

func (s shape) closedBox() bool {
	return strings.Count(s.path, "L") == 3 && strings.HasSuffix(s.path, "Z")
}

func expectCount(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%d %s, expected %d", got, what, want)
	}
}

func TestHeatMapStructure(t *testing.T) {
	r := invented()
	h := HeatMap{X: "x", Y: "y", ColumnNames: lengths, RowNames: lengths, Value: "accuracy", Panels: r.heat(8)}
	h.Panels[2].Values[0][0] = math.NaN()
	paths, texts := shapesOf(t, h)
	expectCount(t, "frames", count(paths, stroked("1.5")), 8)
	expectCount(t, "empty cells", count(paths, func(s shape) bool { return s.style["fill"] == "#F4F4F4" }), 1)
	values := 0
	for _, text := range texts {
		if v, err := strconv.ParseFloat(text, 64); err == nil && strings.Contains(text, ".") && v > 80 {
			values++
		}
	}
	expectCount(t, "values", values, 8*64-1)
	for i := range 8 {
		if !slices.Contains(texts, "Domain 1: "+lengths[i]) {
			t.Errorf("no title for panel %d", i)
		}
	}
	if n := strings.Count(strings.Join(texts, "\n"), "accuracy"); n != 1 {
		t.Errorf("%d colour bars are labelled", n)
	}
	h.WithoutValues = true
	_, texts = shapesOf(t, h)
	for _, text := range texts {
		if strings.HasPrefix(text, "9") && len(text) == 4 {
			t.Errorf("value %s is written", text)
		}
	}
}

func TestBoxStructure(t *testing.T) {
	r := invented()
	panel := BoxPanel{Title: "Client 1", X: "prompt length", Boxes: r.boxes(0, []string{"amazon"})}
	panel.Boxes = append(panel.Boxes, Sample{Label: "none", Values: []float64{math.NaN()}})
	outliers := 0
	for _, b := range panel.Boxes {
		if five, ok := NewFiveNumbers(b.Values, Axis{}); ok {
			outliers += len(five.Outliers)
		}
	}
	if outliers == 0 {
		t.Fatal("the sample has no outlier")
	}
	paths, texts := shapesOf(t, Box{Panels: []BoxPanel{panel}})
	expectCount(t, "medians", count(paths, stroked("1.4")), len(lengths))
	// plus two groups in the legend
	expectCount(t, "boxes", count(paths, func(s shape) bool { return stroked("0.8")(s) && s.closedBox() }),
		len(lengths)+2)
	expectCount(t, "outliers", count(paths, func(s shape) bool {
		return stroked("0.5")(s) && strings.Contains(s.path, "A")
	}), outliers)
	for _, name := range append([]string{"none", "Client 1", "prompt length", "amazon"}, lengths...) {
		if !slices.Contains(texts, name) {
			t.Errorf("%q is not written", name)
		}
	}
}

func TestCurvesStructure(t *testing.T) {
	r := invented()
	panels := r.curves(3, 4, 20)
	panels[0].Lines[1].Y[7] = math.NaN() // breaks the line in two
	panels[1].Lines[2].Spread = nil
	paths, texts := shapesOf(t, Curves{Panels: panels})
	expectCount(t, "bands", count(paths, func(s shape) bool { return s.style["fill-opacity"] != "" }), 3*4+1-1)
	expectCount(t, "lines", count(paths, func(s shape) bool {
		return stroked("1.4")(s) && strings.Count(s.path, "L") > 5
	}), 3*4+1)
	for _, m := range methods[:4] {
		if n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s != m })); n != 1 {
			t.Errorf("%s stands %d times in the legend", m, n)
		}
	}
	expectCount(t, "y labels", len(slices.DeleteFunc(texts, func(s string) bool { return s != "accuracy (%)" })), 1)
}

// Bands lie under all lines. In a panel with more than four lines, error bars at the markers replace them. A label
// keeps its assigned colour.
func TestBandsAndColours(t *testing.T) {
	r := invented()
	is := func(band bool) func(shape) bool {
		return func(s shape) bool {
			return band == (s.style["fill-opacity"] != "") && (band || stroked("1.4")(s) &&
				strings.Count(s.path, "L") > 5)
		}
	}
	paths, _ := shapesOf(t, Curves{Panels: r.curves(1, 4, 20), Colours: Colours{methods[1]: 3}})
	lastBand, firstLine := -1, len(paths)
	var colours []string
	for i, p := range paths {
		if is(true)(p) {
			lastBand = i
		}
		if is(false)(p) {
			firstLine = min(firstLine, i)
			colours = append(colours, strings.ToLower(p.style["stroke"]))
		}
	}
	if lastBand < 0 || lastBand > firstLine {
		t.Errorf("the last band is path %d, the first line path %d", lastBand, firstLine)
	}
	if want := []string{GroupColours[0][0], LineColours[0][3], GroupColours[0][2], GroupColours[0][3]}; !slices.Equal(
		colours[:4], want) {
		t.Errorf("lines have the colours %v, want %v", colours[:4], want)
	}
	paths, _ = shapesOf(t, Curves{Panels: r.curves(1, 5, 20)})
	expectCount(t, "bands of five lines", count(paths, is(true)), 0)
	// Each line of 20 points has a marker at every second one, and a bar of three strokes there.
	expectCount(t, "strokes of bars of five lines", count(paths, stroked("0.9")), 5*10*3)
}

// TestLongLines: of many points in a place the first, the lowest, the highest and the last are drawn, so that 10,000
// rounds take no longer than the about 400 places of a panel need. Rasterizing costs the square of the points.
func TestLongLines(t *testing.T) {
	path := []vg.Point{{X: 0, Y: 1}, {X: 0.1, Y: 5}, {X: 0.2, Y: 4}, {X: 0.3, Y: -3}, {X: 0.6, Y: 2}, {X: 3, Y: 3}}
	if got := visible(path); !slices.Equal(got, slices.Delete(slices.Clone(path), 2, 3)) {
		t.Errorf("drawn points %v", got)
	}
	back := []vg.Point{{X: 9}, {X: 1, Y: 1}, {X: 3, Y: 2}, {X: 5, Y: 3}, {X: 7, Y: 4}, {X: 11, Y: 5}}
	if got := visible(back); !slices.Equal(got, back) { // a mean position of fewer seeds may lie before
		t.Errorf("drawn points %v of a path that goes back", got)
	}
	var l Line
	for i := range 10_000 {
		l.X, l.Y, l.Spread = append(l.X, float64(i)), append(l.Y, float64(i*7919%100)), append(l.Spread, 1)
	}
	paths, _ := shapesOf(t, Curves{Panels: []LinePanel{{Lines: []Line{l}}}})
	if n := count(paths, func(s shape) bool { return strings.Count(s.path, "L") > 2*4*415 }); n > 0 {
		t.Errorf("%d paths have more than four points in a place of either side of a band", n)
	}
}

func TestSensitivityStructure(t *testing.T) {
	r := invented()
	p := LinePanel{X: Axis{Label: "λ", Log: true}, Lines: []Line{r.sweep("a", []float64{0, 0.1, 1, 10}, 90, 1),
		r.sweep("b", []float64{0.1, 1, 10}, 80, 1)}}
	p.Lines[0].Y[0] = 90 // at x = 0, which a logarithmic axis omits
	paths, texts := shapesOf(t, Sensitivity{Panels: []LinePanel{p}, Reference: &Reference{"local", 85}})
	expectCount(t, "strokes of error bars", count(paths, stroked("0.9")), 3*6)
	for _, text := range []string{"0.1", "1", "10", "local", "λ"} {
		if !slices.Contains(texts, text) {
			t.Errorf("%q is not written", text)
		}
	}
	if slices.Contains(texts, "0") {
		t.Error("a logarithmic axis shows 0")
	}
}

func TestScatter3Structure(t *testing.T) {
	r := invented()
	points := append(r.cube(), Point3{math.NaN(), 1, 1, 90}, Point3{4, 4, 4, math.Inf(1)})
	paths, texts := shapesOf(t, Scatter3{Value: "accuracy", Panels: []Scatter3Panel{{"", "one", "two", "three",
		points}}})
	circles := count(paths, func(s shape) bool { return strings.Contains(s.path, "A") && s.style["fill"] != "#FFFFFF" })
	expectCount(t, "points", circles, 512)
	for _, text := range []string{"one", "two", "three", "accuracy", "4", "32"} {
		if !slices.Contains(texts, text) {
			t.Errorf("%q is not written", text)
		}
	}
	s := newSpace(Scatter3Panel{Points: r.cube()}, &scale{})
	for i := 1; i < len(s.points); i++ {
		if s.points[i].dot(viewEye) < s.points[i-1].dot(viewEye) {
			t.Fatal("points are not drawn from the farthest to the nearest")
		}
	}
	// From azimuth -60, elevation 30, the farthest corner of the cube is (0, 1, 0), and the nearest (1, 0, 1).
	if far, near := (vector{0, 1, 0}).dot(viewEye), (vector{1, 0, 1}).dot(viewEye); far >= near {
		t.Errorf("depths %g and %g", far, near)
	}
}

func TestStripsStructure(t *testing.T) {
	r := invented()
	groups := r.groups(40)
	groups[1].Values[3] = math.NaN()
	paths, texts := shapesOf(t, Strips{Panels: []StripPanel{{"", groups}}})
	expectCount(t, "points", count(paths, func(s shape) bool { return strings.Contains(s.path, "A") }), 39)
	expectCount(t, "means", count(paths, stroked("1.1")), 4)
	for _, b := range backbones {
		if !slices.Contains(texts, b) {
			t.Errorf("%q is not written", b)
		}
	}
}

func TestBubblesStructure(t *testing.T) {
	counts := [][]int{{5, 0, 100}, {0, 0, 1}}
	paths, texts := shapesOf(t, Bubbles{Classes: []string{"cat", "dog", "fox"}, Panels: []BubblePanel{{Counts: counts,
		Domains: []string{"photo", "sketch"}}}})
	first, second := strings.ToUpper(GroupColours[0][0]), strings.ToUpper(GroupColours[0][1])
	expectCount(t, "bubbles of the first domain", count(paths, filledCircles(first)), 2+1) // plus one in the legend
	expectCount(t, "bubbles of the second", count(paths, filledCircles(second)), 1+1)
	for _, text := range []string{"cat", "dog", "fox", "photo", "sketch", "client", "class"} {
		if !slices.Contains(texts, text) {
			t.Errorf("%q is not written", text)
		}
	}
	r := invented()
	in := BubblePanel{Counts: r.counts(1000, 250, 50)}
	b := binned(in)
	sum := func(rows [][]int) int {
		n := 0
		for _, row := range rows {
			for _, v := range row {
				n += v
			}
		}
		return n
	}
	if len(b.counts) != 100 || len(b.counts[0]) != 84 || sum(b.counts) != sum(in.Counts) {
		t.Errorf("%d x %d bins with %d of %d examples", len(b.counts), len(b.counts[0]), sum(b.counts), sum(in.Counts))
	}
}

func TestCostStructure(t *testing.T) {
	rows := []CostRow{{"a", 1234, 0.5}, {"b", 2e6, 7300}, {"c", 0, math.NaN()}}
	_, texts := shapesOf(t, Cost{Rows: rows})
	for _, text := range []string{"1.23 kB", "2 MB", "500 ms", "2.03 h", "not measured", "a", "b", "c"} {
		if !slices.Contains(texts, text) {
			t.Errorf("%q is not written", text)
		}
	}
}

func TestSignificanceStructure(t *testing.T) {
	s := invented().versus(3)
	s.P = [][]float64{{math.NaN(), 0.04, 0.0005}, {0.04, 1, 0.2}, {0.0005, 0.009, 1}}
	_, texts := shapesOf(t, s)
	for mark, want := range map[string]int{"*": 2, "**": 1, "***": 2, "+1.3": 2, "-2.6": 1} {
		expectCount(t, mark, len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s != mark })),
			want)
	}
}

// Demsar's example (section 3.2.2): C4.5 and three variants, with a critical difference of 1.12 at 0.10. C4.5 is then
// worse than the two best methods, and the third best differs from none: two bars.
func TestRanksStructure(t *testing.T) {
	const long = "C4.5 without the two variants, whose name takes-more-than-one-line-although-it-has-few-blanks"
	f := Ranks{Names: []string{long, "C4.5+m", "C4.5+cf", "C4.5+m+cf"}, Mean: []float64{3.143, 2.000, 2.893, 1.964},
		Difference: 1.12}
	paths, texts := shapesOf(t, f)
	checked(t, f, 12)
	if all := strings.ReplaceAll(strings.Join(texts, ""), " ", ""); !strings.Contains(all, strings.ReplaceAll(long, " ",
		"")) {
		t.Errorf("the long name is not whole in %q", texts)
	}
	for _, text := range []string{"3.1", "2.0", "2.9", "critical difference 1.12", "C4.5+m+cf", "1", "4"} {
		if !slices.Contains(texts, text) {
			t.Errorf("%q is not written: %q", text, texts)
		}
	}
	expectCount(t, "bars", count(paths, func(s shape) bool { return s.style["stroke-width"] == "2" }), 2)
}

func TestEmbeddingStructure(t *testing.T) {
	r := invented()
	in := r.prompts("", 40, 2)
	for i := range in.Groups {
		in.Groups[i] = "all"
	}
	paths, texts := shapesOf(t, TSNE{Panels: []TSNEPanel{in}})
	expectCount(t, "points", count(paths, filledCircles(strings.ToUpper(GroupColours[0][0]))), 40+1)
	if !slices.Contains(texts, "all") {
		t.Error("the group is not in the legend")
	}
	paths, texts = shapesOf(t, PCA{Classes: []string{"cat"}, Panels: []PCAPanel{r.features(30, 1)}})
	expectCount(t, "images", count(paths, func(s shape) bool {
		return strings.Contains(s.path, "A") && s.style["fill-opacity"] != ""
	}), 30)
	// before: edge and inside; after: white edge and inside; in the legend the same without the white edge
	expectCount(t, "corners of stars", count(paths, func(s shape) bool { return strings.Count(s.path, "L") == 9 }),
		2+2+2+1)
	if !slices.ContainsFunc(texts, func(s string) bool {
		return strings.HasPrefix(s, "component 1 (") && strings.HasSuffix(s, " %)")
	}) {
		t.Errorf("no explained variance in %q", texts)
	}
}

// TestPhoneForm: a figure of several panels has a narrower form for phones, and one of a single panel has none. 64
// panels have one too, though a single column would be higher than the limit of 4000 points.
func TestPhoneForm(t *testing.T) {
	panel := BubblePanel{Counts: slices.Repeat([][]int{{9, 1}}, 12)}
	for n, narrower := range map[int]bool{1: false, 4: true, 64: true} {
		f, err := Draw(Bubbles{Panels: slices.Repeat([]BubblePanel{panel}, n)})
		if err != nil {
			t.Fatal(err)
		}
		_, whole, err := f.PageSVG(0)
		if err != nil {
			t.Fatal(err)
		}
		svg, width, err := f.PageSVG(PhoneWidth)
		if err != nil || (svg != nil) != narrower || narrower && width >= whole {
			t.Errorf("%d panels, %v points wide: %d bytes, %v points for phones, %v", n, whole, len(svg), width, err)
		}
	}
}
