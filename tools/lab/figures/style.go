package figures

import (
	"image/color"
	"strings"
	"unicode"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	letterset "promptfed/tools/lab/figures/letters"
)

// Sizes of letters, in points.
const (
	titleSize = 10
	labelSize = 9
	tickSize  = 8
	smallSize = 7
)

// middle centres capitals and digits on a point; the library's own centre includes descenders.
const middle text.YAlignment = -0.41

var (
	ink   = color.NRGBA{34, 34, 34, 255}
	grey  = color.NRGBA{136, 136, 136, 255}
	pale  = color.NRGBA{228, 228, 228, 255}
	paler = color.NRGBA{244, 244, 244, 255}
)

// handler draws all text.
var handler = letterset.Handler{Plain: text.Plain{Fonts: plotfont.DefaultCache}}

// letters returns the style for text of one size, anchored at its drawing point.
func letters(size float64, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{
		Color:   ink,
		Font:    plotfont.Font{Typeface: "Liberation", Variant: "Sans", Size: plotfont.Length(size)},
		XAlign:  x,
		YAlign:  y,
		Handler: handler,
	}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = font.WeightBold
	return s
}

func coloured(s text.Style, c color.Color) text.Style {
	s.Color = c
	return s
}

func turned(s text.Style, angle float64) text.Style {
	s.Rotation = angle
	return s
}

// newPlot returns an empty plot in the style of all figures: thin axes, no title of its own, no background.
func newPlot() *plot.Plot {
	chart := plot.New()
	chart.TextHandler, chart.BackgroundColor = handler, nil
	line := draw.LineStyle{Color: ink, Width: 0.6}
	for _, a := range []*plot.Axis{&chart.X, &chart.Y} {
		a.Label.TextStyle.Handler, a.Tick.Label.Handler = handler, handler
		a.Label.TextStyle.Font = letters(labelSize, 0, 0).Font
		a.Label.TextStyle.Color = ink
		a.Label.Padding = 3
		a.Tick.Label.Font = letters(tickSize, 0, 0).Font
		a.Tick.Label.Color = ink
		a.Tick.Length = 3
		a.Tick.LineStyle, a.LineStyle = line, line
		a.Padding = 0
	}

	return chart
}

// clean makes a label from a file one line of printable text.
func clean(label string) string {
	label = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(label, "\uFFFD"))

	return strings.Join(strings.Fields(label), " ")
}

// shorten cuts a label to a width and marks the cut with three dots.
func shorten(label string, style text.Style, width vg.Length) string {
	label = clean(label)
	if style.Width(label) <= width {
		return label
	}
	start, _ := cut(label, "…", style, width)
	return strings.TrimRight(start, " ") + "…"
}

// cut splits a label into the start that fits into a width together with a mark, and the rest.
func cut(label, mark string, style text.Style, width vg.Length) (start, rest string) {
	runes := []rune(label)

	// Width grows with the number of letters, approximately.
	low, high := 0, min(len(runes), 400)
	for low < high {
		if mid := (low + high + 1) / 2; style.Width(string(runes[:mid])+mark) <= width {
			low = mid
		} else {
			high = mid - 1
		}
	}

	return string(runes[:low]), string(runes[low:])
}

// wrap breaks a text into at most the given number of lines and cuts the last one. A word that is wider than a line
// continues on the next one.
func wrap(label string, style text.Style, width vg.Length, lines int) []string {
	words := strings.Fields(clean(label))
	var out []string
	for len(words) > 0 && len(out) < lines-1 {
		n := 1
		for n < len(words) && style.Width(strings.Join(words[:n+1], " ")) <= width {
			n++
		}
		if start, rest := cut(words[0], "", style, width); rest != "" && start != "" {
			out, words[0] = append(out, start), rest
			continue
		}
		out = append(out, strings.Join(words[:n], " "))
		words = words[n:]
	}

	if len(words) > 0 {
		out = append(out, shorten(strings.Join(words, " "), style, width))
	}

	return out
}

// write draws lines of text, the first at a point.
func write(c draw.Canvas, style text.Style, at vg.Point, lines []string) {
	for i, line := range lines {
		c.FillText(style, vg.Point{X: at.X, Y: at.Y - vg.Length(i)*lineHeight(style.Font.Size.Points())}, line)
	}
}

// lineHeight returns the distance between two lines of text.
func lineHeight(size float64) vg.Length { return vg.Length(1.25 * size) }
