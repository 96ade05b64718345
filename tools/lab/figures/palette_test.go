package figures

import (
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// deficiencies are Machado, Oliveira and Fernandes' (2009) matrices of full protanopia, deuteranopia and tritanopia, on
// linear RGB; the first is normal sight.
var deficiencies = map[string][3][3]float64{
	"normal": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216},
		{-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413},
		{-0.011820, 0.042940, 0.968881}},
	"tritanopia": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func linearRGB(c color.NRGBA) (out [3]float64) {
	for i, b := range []uint8{c.R, c.G, c.B} {
		if v := float64(b) / 255; v <= 0.04045 {
			out[i] = v / 12.92
		} else {
			out[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return out
}

func times(m [3][3]float64, v [3]float64) (out [3]float64) {
	for i, row := range m {
		out[i] = row[0]*v[0] + row[1]*v[1] + row[2]*v[2]
	}
	return out
}

// oklab returns the coordinates of a colour in Ottosson's (2020) perceptual space, as seen with a deficiency.
func oklab(c color.NRGBA, seen [3][3]float64) [3]float64 {
	v := times(seen, linearRGB(c))
	for i := range v {
		v[i] = min(1, max(0, v[i]))
	}
	v = times([3][3]float64{{0.4122214708, 0.5363325363, 0.0514459929}, {0.2119034982, 0.6806995451, 0.1073969566},
		{0.0883024619, 0.2817188376, 0.6299787005}}, v)
	for i := range v {
		v[i] = math.Cbrt(v[i])
	}
	return times([3][3]float64{{0.2104542553, 0.7936177850, -0.0040720468},
		{1.9779984951, -2.4285922050, 0.4505937099}, {0.0259040371, 0.7827717662, -0.8086757660}}, v)
}

// TestPalettes: all colours have WCAG's contrast of 3 with their background. No two methods look alike to readers with
// any sight, and no group looks like a method. Greys differ from each other in lightness.
func TestPalettes(t *testing.T) {
	luminance := func(c color.NRGBA) float64 {
		v := linearRGB(c)
		return 0.2126*v[0] + 0.7152*v[1] + 0.0722*v[2]
	}
	for theme, behind := range []string{"#ffffff", "#11151c"} {
		methods, groups := parsed(LineColours[theme]), parsed(GroupColours[theme])
		back := luminance(parsed([]string{behind})[0])
		for i, c := range append(parsed(LineColours[theme]), groups...) {
			l := luminance(c)
			if ratio := (max(l, back) + 0.05) / (min(l, back) + 0.05); ratio < 3 {
				t.Errorf("colour %d has a contrast of %.2f with %s", i, ratio, behind)
			}
		}
		for sight, seen := range deficiencies {
			least := 0.05
			if sight == "normal" {
				least = 0.1
			}
			for i, a := range append(parsed(LineColours[theme]), groups...) {
				for j, b := range methods {
					x, y := oklab(a, seen), oklab(b, seen)
					d := math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2])
					if i != j && d < least {
						t.Errorf("%s, on %s: colours %d and %d are %.3f apart", sight, behind, i, j, d)
					}
				}
			}
		}
		for i := 1; i < len(groups); i++ {
			a, b := oklab(groups[i-1], deficiencies["normal"]), oklab(groups[i], deficiencies["normal"])
			if math.Abs(a[0]-b[0]) < 0.07 {
				t.Errorf("greys %d and %d on %s differ by %.3f in lightness", i-1, i, behind, math.Abs(a[0]-b[0]))
			}
		}
	}
}

// TestClassesFromTheTop: the first class is on top in every figure of classes, and its bubble is too.
func TestClassesFromTheTop(t *testing.T) {
	classes := []string{"cat", "dog", "fox"}
	for _, d := range []Drawer{Bubbles{Classes: classes, Panels: []BubblePanel{{Counts: [][]int{{9, 1, 1}}}}},
		HeatMap{RowNames: classes, ColumnNames: classes, Panels: []HeatPanel{{Values: [][]float64{{1, 0, 0}, {0, 0, 0},
			{0, 0, 0}}}}}} {
		s, err := d.draw()
		if err != nil {
			t.Fatal(err)
		}
		y := s.panels[0].Y
		for _, tick := range y.Tick.Marker.Ticks(y.Min, y.Max) {
			if want := map[string]float64{"cat": 2, "dog": 1, "fox": 0}[tick.Label]; tick.Value != want {
				t.Errorf("%T: %q stands at %v, want %v", d, tick.Label, tick.Value, want)
			}
		}
	}
	paths, _ := shapesOf(t, Bubbles{Classes: classes, Panels: []BubblePanel{{Counts: [][]int{{900, 1, 1}}}}})
	place := regexp.MustCompile(`^M[-\d.]+,([-\d.]+)`)
	var ys []float64 // of bubbles, class by class; SVG files of the library point upwards
	for _, p := range paths {
		if strings.Contains(p.path, "A") && p.style["fill"] == strings.ToUpper(GroupColours[0][0]) {
			v, err := strconv.ParseFloat(place.FindStringSubmatch(p.path)[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			ys = append(ys, v)
		}
	}
	if len(ys) != 3 || ys[0] <= ys[1] || ys[1] <= ys[2] {
		t.Errorf("bubbles of the classes are at %v", ys)
	}
}
