package figures

import (
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colourBar tells what value a colour stands for. The library's own is an image, which would not stay sharp in SVG.
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

func (b *colourBar) ticks() evenTicks { return evenTicks{n: 5} }

// width is the room that the bar takes, none for no bar.
func (b *colourBar) width() vg.Length {
	if b == nil {
		return 0
	}
	widest := vg.Length(0)
	for _, t := range b.ticks().Ticks(b.low, b.high) {
		widest = max(widest, barStyle.Width(t.Label))
	}
	w := barGap + barWide + 5 + widest
	if b.label != "" {
		w += lineHeight(labelSize)
	}
	return w + 2
}

// paint draws the bar in the middle of an area's height.
func (b *colourBar) paint(area draw.Canvas) {
	high := min(barHigh, area.Max.Y-area.Min.Y)
	bottom := (area.Min.Y+area.Max.Y)/2 - high/2
	x := area.Min.X + barGap
	frame := vg.Rectangle{Min: vg.Point{X: x, Y: bottom}, Max: vg.Point{X: x + barWide, Y: bottom + high}}
	for i := range barSteps { // each covers the rest of the bar, so that no seam shows between two
		part := frame
		part.Min.Y = bottom + high*vg.Length(i)/barSteps
		area.SetColor(b.colour(b.low + (b.high-b.low)*(float64(i)+0.5)/barSteps))
		area.Fill(part.Path())
	}
	area.SetLineStyle(draw.LineStyle{Color: ink, Width: 0.5})
	area.Stroke(frame.Path())
	widest := vg.Length(0)
	for _, t := range b.ticks().Ticks(b.low, b.high) {
		y := bottom + high*vg.Length((t.Value-b.low)/(b.high-b.low))
		area.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.5}, frame.Max.X, y, frame.Max.X+2.5, y)
		area.FillText(barStyle, vg.Point{X: frame.Max.X + 5, Y: y}, t.Label)
		widest = max(widest, barStyle.Width(t.Label))
	}
	if b.label != "" {
		style := turned(letters(labelSize, draw.XCenter, draw.YTop), math.Pi/2)
		label := shorten(b.label, style, area.Max.Y-area.Min.Y+2*edge)
		area.FillText(style, vg.Point{X: frame.Max.X + 7 + widest, Y: bottom + high/2}, label)
	}
}
