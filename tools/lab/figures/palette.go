package figures

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// viridis holds ten anchors of matplotlib's map of that name (CC0). It is perceptually uniform, lightness grows evenly
// between them, and it stays readable in black and white.
var viridis = []color.Color{
	color.NRGBA{0x44, 0x01, 0x54, 255}, color.NRGBA{0x48, 0x28, 0x78, 255}, color.NRGBA{0x3e, 0x49, 0x89, 255},
	color.NRGBA{0x31, 0x68, 0x8e, 255}, color.NRGBA{0x26, 0x82, 0x8e, 255}, color.NRGBA{0x1f, 0x9e, 0x89, 255},
	color.NRGBA{0x35, 0xb7, 0x79, 255}, color.NRGBA{0x6e, 0xce, 0x58, 255}, color.NRGBA{0xb5, 0xde, 0x2b, 255},
	color.NRGBA{0xfd, 0xe7, 0x25, 255},
}

// scale maps values to colours between two ends.
type scale struct {
	low, high float64
	colours   palette.ColorMap
}

// newScale returns a scale over a span of values; ends replace the span if they differ. The colours of differences are
// blue below zero and red above.
func newScale(differences bool, values span, ends [2]float64) (*scale, error) {
	scale := &scale{low: values.low, high: values.high}
	if ends[0] < ends[1] {
		scale.low, scale.high = ends[0], ends[1]
	}

	if scale.low > scale.high || !usable(scale.low) || !usable(scale.high) {
		return nil, fmt.Errorf("no value to colour by: every one is missing or not a number")
	}

	if wide := math.Max(math.Abs(scale.low), math.Abs(scale.high)); scale.high-scale.low <= 1e-9*wide ||
		scale.high == scale.low {
		half := math.Max(0.5, 0.005*wide)
		scale.low, scale.high = scale.low-half, scale.high+half
	}

	if differences {
		scale.colours = moreland.SmoothBlueRed()
	} else {
		m, err := moreland.NewLuminance(viridis)
		if err != nil {
			return nil, err
		}
		scale.colours = m
	}

	scale.colours.SetMin(0)
	scale.colours.SetMax(1)
	return scale, nil
}

// SequentialColours returns n colours of Viridis, #rrggbb, from the lowest value to the highest, for drawings of a
// page.
func SequentialColours(n int) []string {
	s, err := newScale(false, span{0, 1}, [2]float64{})
	if err != nil {
		panic(err) // a palette above
	}

	out := make([]string, n)
	for i := range out {
		c := s.colour(float64(i) / float64(n-1))
		out[i] = fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
	}

	return out
}

// colour returns the colour of a value; values beyond an end get the colour of the end.
func (s *scale) colour(v float64) color.NRGBA {
	c, err := s.colours.At(min(1, max(0, (v-s.low)/(s.high-s.low))))
	if err != nil { // rounding error at an end of the map
		c, err = s.colours.At(min(0.999, max(0.001, (v-s.low)/(s.high-s.low))))
	}

	if err != nil {
		return grey
	}

	return color.NRGBAModel.Convert(c).(color.NRGBA)
}

// over returns the more readable of black and white on a colour (relative luminance of sRGB, Rec. 709 weights).
func over(c color.NRGBA) color.NRGBA {
	linear := func(b uint8) float64 { return math.Pow(float64(b)/255, 2.2) }
	if 0.2126*linear(c.R)+0.7152*linear(c.G)+0.0722*linear(c.B) > 0.179 { // both contrasts are 4.6 at 0.179
		return color.NRGBA{0, 0, 0, 255}
	}
	return color.NRGBA{255, 255, 255, 255}
}

// colourBar shows the values of colours. The plot library's own bar is an image and not sharp in SVG.
type colourBar struct {
	*scale
	label string
}

const (
	barGap   vg.Length = 10 // from the panels
	barWide  vg.Length = 10
	barHigh  vg.Length = 220
	barSteps           = 128
)

var barStyle = letters(tickSize, draw.XLeft, middle)

// ticks returns the labelled values and the width of the widest label.
func (b *colourBar) ticks() (ticks []plot.Tick, widest vg.Length) {
	ticks = evenTicks{n: 5}.Ticks(b.low, b.high)
	for _, t := range ticks {
		widest = max(widest, barStyle.Width(t.Label))
	}
	return ticks, widest
}

// width returns the width of the bar with its margins, or 0 without a bar.
func (b *colourBar) width() vg.Length {
	if b == nil {
		return 0
	}

	_, widest := b.ticks()
	return barGap + barWide + 7 + widest + lineHeight(labelSize)
}

// paint draws the bar in the middle of an area's height.
func (b *colourBar) paint(area draw.Canvas) {
	high := min(barHigh, area.Max.Y-area.Min.Y)
	bottom := (area.Min.Y+area.Max.Y)/2 - high/2
	x := area.Min.X + barGap
	frame := vg.Rectangle{Min: vg.Point{X: x, Y: bottom}, Max: vg.Point{X: x + barWide, Y: bottom + high}}
	for i := range barSteps { // each step covers the rest of the bar, so that no seam is visible
		part := frame
		part.Min.Y = bottom + high*vg.Length(i)/barSteps
		fill(area, part, b.colour(b.low+(b.high-b.low)*(float64(i)+0.5)/barSteps))
	}

	line := draw.LineStyle{Color: ink, Width: 0.5}
	area.SetLineStyle(line)
	area.Stroke(frame.Path())
	ticks, widest := b.ticks()
	for _, t := range ticks {
		y := bottom + high*vg.Length((t.Value-b.low)/(b.high-b.low))
		area.StrokeLine2(line, frame.Max.X, y, frame.Max.X+2.5, y)
		area.FillText(barStyle, vg.Point{X: frame.Max.X + 5, Y: y}, t.Label)
	}

	style := turned(letters(labelSize, draw.XCenter, draw.YTop), math.Pi/2)
	label := shorten(b.label, style, area.Max.Y-area.Min.Y+2*edge)
	area.FillText(style, vg.Point{X: frame.Max.X + 7 + widest, Y: bottom + high/2}, label)
}
