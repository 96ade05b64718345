package figures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/runtime/filetest"
)

// Quartiles, whiskers and outliers equal NumPy's and matplotlib's (tools/golden/figures.py).
func TestNewFiveNumbers(t *testing.T) {
	data := filetest.Read(t, "testdata/quartiles.json")
	var cases []struct {
		Values []float64
		FiveNumbers
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 5 {
		t.Fatal(err, len(cases))
	}
	for _, c := range cases {
		got, ok := NewFiveNumbers(append(c.Values, math.NaN()), Axis{})
		if !ok {
			t.Errorf("%v: no numbers", c.Values)
		}
		for i, pair := range [][2]float64{{got.Low, c.Low}, {got.Q1, c.Q1}, {got.Median, c.Median}, {got.Q3, c.Q3},
			{got.High, c.High}} {
			if math.Abs(pair[0]-pair[1]) > 1e-12 {
				t.Errorf("%v: number %d is %g, not %g", c.Values, i, pair[0], pair[1])
			}
		}
		if !slices.Equal(got.Outliers, c.Outliers) {
			t.Errorf("%v: outliers %v, not %v", c.Values, got.Outliers, c.Outliers)
		}
	}
	if _, ok := NewFiveNumbers([]float64{math.NaN(), math.Inf(1)}, Axis{}); ok {
		t.Error("no numbers have quartiles")
	}
}

// The same numbers produce the same bytes, in repeated and in parallel drawings.
func TestSameBytes(t *testing.T) {
	first, second := gallery(), gallery()
	var wait sync.WaitGroup
	for i := range first {
		if strings.HasSuffix(first[i].name, "00") { // the large ones are slow
			continue
		}
		wait.Go(func() {
			var svg, images [2][]byte
			for j, d := range []Drawer{first[i], second[i]} {
				f, err := Draw(d)
				if err != nil {
					t.Errorf("%s: %v", first[i].name, err)
					return
				}
				if svg[j], err = f.SVG(); err != nil {
					t.Error(err)
				}
				if i%4 == 0 {
					if images[j], err = f.PNG(); err != nil {
						t.Error(err)
					}
				}
			}
			if !bytes.Equal(svg[0], svg[1]) || !bytes.Equal(images[0], images[1]) {
				t.Errorf("%s differs when drawn again", first[i].name)
			}
		})
	}
	wait.Wait()
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	f, err := Draw(Curves{Title: `a < b & "c"`, Panels: invented().curves(1, 2, 5)})
	if err != nil {
		t.Fatal(err)
	}
	if err := Save(f, dir, "one"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "one.png" || entries[1].Name() != "one.svg" {
		t.Fatalf("%v %v", entries, err)
	}
	in, err := os.Open(filepath.Join(dir, "one.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	picture, err := png.Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	width, height := f.width.Points(), f.height.Points() // twice 96 dots to the inch
	if size := picture.Bounds().Size(); math.Abs(float64(size.X)-width*192/72) > 1 ||
		math.Abs(float64(size.Y)-height*192/72) > 1 {
		t.Errorf("%v dots for %g x %g points", size, width, height)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "one.svg"))
	if err != nil || !bytes.HasPrefix(svg, []byte(`<svg role="img" `)) || !bytes.Contains(svg,
		[]byte("<title>a &lt; b &amp; &#34;c&#34;</title>")) {
		t.Errorf("%.200s (%v)", svg, err)
	}
	blocked := filepath.Join(dir, "one.png", "more")
	if err := Save(f, blocked, "two"); err == nil {
		t.Error("a file in the place of a folder is no error")
	}
}

// Invalid numbers produce a one-line error with the kind of the figure. Valid numbers produce a figure, even unusual
// ones.
func TestOddInputs(t *testing.T) {
	nan := math.NaN()
	one := func(x, y float64) []LinePanel {
		return []LinePanel{{Lines: []Line{{X: []float64{x}, Y: []float64{y}}}}}
	}
	long := strings.Repeat("W", 5000)
	cases := []struct {
		name string
		Drawer
		want string // part of the error; "" for no error
	}{
		{"no panels", Curves{}, "curves: there is no panel"},
		{"no points", Curves{Panels: []LinePanel{{Lines: []Line{{}}}}}, "curves: no line has a point"},
		{"NaN", Curves{Panels: one(1, nan)}, "no line has a point"},
		{"infinite", Sensitivity{Panels: one(1, math.Inf(-1))}, "sensitivity: no line has a point"},
		{"too large", Curves{Panels: one(1e200, 1)}, "no line has a point"},
		{"one point", Curves{Panels: one(3, 0.5)}, ""},
		{"one large point", Curves{Panels: one(3, -1e99)}, ""},
		{"one tiny point", Curves{Panels: one(1e-300, 5e-324)}, ""},
		{"one empty panel of two", Curves{Panels: append(one(1, 2), LinePanel{Title: "empty"})}, ""},
		{"below a log axis", Sensitivity{Panels: []LinePanel{{X: Axis{Log: true}, Lines: []Line{{X: []float64{0, -1},
			Y: []float64{1, 1}}}}}}, "no line has a point"},
		{"wide log axis", Sensitivity{Panels: []LinePanel{{X: Axis{Log: true}, Y: Axis{Log: true},
			Lines: []Line{{X: []float64{1e-90, 1e90}, Y: []float64{1e-9, 1e9}, Spread: []float64{1, nan}}}}}}, ""},
		{"one point on log axes", Sensitivity{Panels: []LinePanel{{X: Axis{Log: true}, Y: Axis{Log: true},
			Lines: []Line{{X: []float64{7}, Y: []float64{7}}}}}}, ""},
		{"too many panels", Curves{Panels: slices.Repeat(one(1, 1), 65)}, "65 panels are too many"},
		{"huge labels", Curves{Title: long, Panels: []LinePanel{{Title: long, X: Axis{Label: long},
			Y: Axis{Label: long}, Lines: []Line{{Label: long, X: []float64{1}, Y: []float64{1}}}}}}, ""},
		{"bytes that are no text", Curves{Title: "a\x00b\xff\n\tc", Panels: one(1, 1)}, ""},
		{"no heat", HeatMap{Panels: []HeatPanel{{}}}, "heat map: 0 row names"},
		{"heat without numbers", HeatMap{RowNames: []string{"a"}, ColumnNames: []string{"b"},
			Panels: []HeatPanel{{Values: [][]float64{{nan}}}}}, "no value to colour by"},
		{"one cell", HeatMap{RowNames: []string{long}, ColumnNames: []string{long},
			Panels: []HeatPanel{{Values: [][]float64{{1}}}}}, ""},
		{"no boxes", Box{Panels: []BoxPanel{{}}}, "box: panel 1 has 0 boxes"},
		{"boxes without numbers", Box{Panels: []BoxPanel{{Boxes: []Sample{{Values: []float64{nan}}}}}},
			"no box has a value"},
		{"one value", Box{Panels: []BoxPanel{{Boxes: []Sample{{Values: []float64{4}}}}}}, ""},
		{"boxes on a log axis", Box{Y: Axis{Log: true},
			Panels: []BoxPanel{{Boxes: []Sample{{Values: []float64{-4, 0, 1, 100}}}}}}, ""},
		{"no cube", Scatter3{Panels: []Scatter3Panel{{}}}, "scatter3: no value to colour by"},
		{"one point in space", Scatter3{Panels: []Scatter3Panel{{Points: []Point3{{1, 1, 1, 1}}}}}, ""},
		{"coloured but nowhere", Scatter3{Panels: []Scatter3Panel{{Points: []Point3{{nan, 1, 1, 1}}}}}, ""},
		{"no clients", Strips{Panels: []StripPanel{{}}}, "strips: panel 1 has 0 clients"},
		{"no strips", Strips{Panels: []StripPanel{{Groups: []StripGroup{{Values: []float64{nan}}}}}},
			"no client has a value"},
		{"one client", Strips{Panels: []StripPanel{{Groups: []StripGroup{{Values: []float64{-3}}}}}}, ""},
		{"an empty group", Strips{Panels: []StripPanel{{Groups: []StripGroup{{Label: "none"}, {Label: "one",
			Values: []float64{1}}}}}}, ""},
		{"no rows", TSNE{Panels: []TSNEPanel{{}}}, "t-SNE: panel 1: there are no rows"},
		{"no maps", TSNE{}, "there is no panel"},
		{"one row", TSNE{Panels: []TSNEPanel{{Rows: [][]float64{{1}}}}}, ""},
		{"one image", PCA{Panels: []PCAPanel{{Images: [][]float64{{1}}, Labels: []int{0}, Before: [][]float64{{1}},
			After: [][]float64{{1}}}}, Classes: []string{"a"}}, "PCA: panel 1: one row"},
		{"class out of range", PCA{Panels: []PCAPanel{{Images: [][]float64{{1}}, Labels: []int{1},
			Before: [][]float64{{1}}, After: [][]float64{{1}}}}, Classes: []string{"a"}}, "image 0 has class 1 of 1"},
		{"text of another width", PCA{Panels: []PCAPanel{{Images: [][]float64{{1}, {2}}, Labels: []int{0, 0},
			Before: [][]float64{{1, 2}}, After: [][]float64{{1}}}}, Classes: []string{"a"}}, "text before 0"},
		{"text that is no number", PCA{Panels: []PCAPanel{{Images: [][]float64{{1}, {2}}, Labels: []int{0, 0},
			Before: [][]float64{{nan}}, After: [][]float64{{1}}}}, Classes: []string{"a"}}, "not a number"},
		{"equal images", PCA{Panels: []PCAPanel{{Images: [][]float64{{1}, {1}}, Labels: []int{0, 0},
			Before: [][]float64{{1}}, After: [][]float64{{1}}}}, Classes: []string{"a"}}, ""},
		{"no bubbles", Bubbles{Panels: []BubblePanel{{}}}, "bubbles: panel 1: no clients"},
		{"no examples", Bubbles{Panels: []BubblePanel{{Counts: [][]int{{0}}}}}, "no client has examples"},
		{"ragged bubbles", Bubbles{Panels: []BubblePanel{{Counts: [][]int{{1}, {1, 2}}}}},
			"client 1 has counts of 2 classes"},
		{"one bubble", Bubbles{Panels: []BubblePanel{{Counts: [][]int{{math.MaxInt}}}}}, ""},
		{"unknown costs", Cost{Rows: []CostRow{{"a", 0, nan}}}, "no method has a cost"},
		{"one cost", Cost{Rows: []CostRow{{long, 1, 0}}}, ""},
		{"one method", Significance{Names: []string{"a"}, Difference: [][]float64{{0}}, P: [][]float64{{1}}}, ""},
		{"no difference", Ranks{Names: []string{"a", "b"}, Mean: []float64{1, 2}, Difference: nan}, ""},
		{"a difference beyond the axis", Ranks{Names: []string{long, "b"}, Mean: []float64{1, 2}, Difference: 9}, ""},
		{"equal ranks", invented().ranked(named("method", 52), 51), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				checked(t, c, 0)
				shapesOf(t, c) // checks that it is XML
			} else if _, err := Draw(c); err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, expected %q", err, c.want)
			}
		})
	}
}

// TestHeatMapRuns: with 200 classes, each confused with one other class, a row has three or four areas (zeros between
// and beside two values) instead of 200.
func TestHeatMapRuns(t *testing.T) {
	const n = 200
	f := HeatMap{WithoutValues: true, Scale: [2]float64{0, 1}, Panels: []HeatPanel{{}}}
	for i := range n {
		row := make([]float64, n)
		row[i], row[(i+7)%n] = 0.75, 0.25
		if i == 5 {
			row = slices.Repeat([]float64{math.NaN()}, n)
		}
		f.Panels[0].Values = append(f.Panels[0].Values, row)
		f.RowNames = append(f.RowNames, fmt.Sprint("class ", i))
	}
	f.ColumnNames = f.RowNames
	drawn, err := Draw(f)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := drawn.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(svg), "<path"); got > 8*n {
		t.Errorf("%d paths, %d bytes", got, len(svg))
	}
}

// A figure without panels or rows has its own error, so that a report omits the figure without a note.
func TestErrEmpty(t *testing.T) {
	for _, d := range []Drawer{Curves{}, Sensitivity{}, HeatMap{}, Scatter3{}, Box{}, Strips{}, TSNE{}, PCA{},
		Bubbles{}, Cost{}, Significance{}, Ranks{}} {
		if _, err := Draw(d); !errors.Is(err, ErrEmpty) {
			t.Errorf("%T: %v", d, err)
		}
	}
}
