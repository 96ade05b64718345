package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"promptfed/tools/lab/figures/embedding"
)

// PCAPanel is the features of one backbone.
type PCAPanel struct {
	Title  string
	Images [][]float64 // [N][D] unit rows
	Labels []int       // [N] the class of each image
	Before [][]float64 // [C][D] text features before training
	After  [][]float64 // [C][D] text features after training
}

// PCA shows image features in the plane of their first two principal components, coloured by class, and each class's
// text feature moving from its place before training to its place after training, as in GGTPC's figure 1. PerClass
// draws a panel for every class, as in that figure.
type PCA struct {
	Title    string
	Classes  []string
	PerClass bool
	Panels   []PCAPanel
}

func (f PCA) kind() (string, int) { return "PCA", len(f.Panels) }

// moveLine leads from a text before training to the text after training.
var moveLine = draw.LineStyle{Color: ink, Width: 0.8}

// The glyphs of a panel for one class.
var (
	imageGlyph  = draw.GlyphStyle{Color: greys[3], Radius: 2.4, Shape: draw.CircleGlyph{}}
	meanGlyph   = draw.GlyphStyle{Color: greys[0], Radius: 2.6, Shape: draw.CircleGlyph{}}
	beforeGlyph = draw.GlyphStyle{Color: greys[2], Radius: 4.4, Shape: shapes[5]}
	afterGlyph  = draw.GlyphStyle{Color: greys[0], Radius: 4.4, Shape: shapes[5]}
)

func (f PCA) draw() (*sheet, error) {
	sheet := &sheet{title: f.Title, width: 260, height: 215}
	if n := len(f.Panels); n > 1 || f.PerClass && len(f.Classes) > 1 {
		sheet.width, sheet.height = 165, 140
	}

	for i, in := range f.Panels {
		places, err := f.places(in)
		if err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}

		classes := []int{-1}
		if f.PerClass {
			classes = nil
			for c := range f.Classes {
				classes = append(classes, c)
			}
		}

		if len(classes) > maxPanels {
			return nil, fmt.Errorf("panel %d: %d classes are too many for a panel each: give at most %d", i+1,
				len(f.Classes), maxPanels)
		}

		for _, class := range classes {
			chart := mapPlot(sheet.width, sheet.height, places.images, places.before, places.after)
			for k, a := range []*plot.Axis{&chart.X, &chart.Y} {
				a.Label.Text = fmt.Sprintf("component %d (%.1f %%)", k+1, 100*places.explained[k])
				a.Tick.Marker = evenTicks{n: 4}
			}

			title := in.Title
			if chart.Add(gridLines(true, true)); class < 0 {
				chart.Add(plotted(places.all))
			} else {
				chart.Add(plotted(func(c draw.Canvas, p *plot.Plot) { places.one(c, p, class) }))
				if title = f.Classes[class]; in.Title != "" {
					title = in.Title + ": " + title
				}
			}

			sheet.add(chart, title)
		}
	}

	if f.PerClass {
		sheet.legend = legend{glyphEntry("image features", imageGlyph), glyphEntry("their mean", meanGlyph),
			glyphEntry("text before", beforeGlyph), glyphEntry("text after", afterGlyph)}
		return sheet, nil
	}

	for c, name := range f.Classes {
		sheet.legend = append(sheet.legend, glyphEntry(name, groupStyle(c).glyph(3)))
	}

	sheet.legend = append(sheet.legend,
		glyphEntry("text before", draw.GlyphStyle{Color: grey, Radius: 4, Shape: hollowStar{}}),
		glyphEntry("text after", draw.GlyphStyle{Color: grey, Radius: 4, Shape: star()}))
	return sheet, nil
}

// plane is the features of a panel in two coordinates.
type plane struct {
	images, before, after [][2]float64
	labels                []int
	explained             [2]float64
}

// places projects the features of a panel.
func (f PCA) places(in PCAPanel) (*plane, error) {
	if len(in.Before) != len(f.Classes) || len(in.After) != len(f.Classes) {
		return nil, fmt.Errorf("%d text features before and %d after for %d classes", len(in.Before), len(in.After),
			len(f.Classes))
	}

	for i, c := range in.Labels {
		if c < 0 || c >= len(f.Classes) {
			return nil, fmt.Errorf("image %d has class %d of %d", i, c, len(f.Classes))
		}
	}

	basis, err := embedding.PrincipalComponents(in.Images)
	if err != nil {
		return nil, err
	}

	project := func(what string, rows [][]float64) (out [][2]float64) {
		for i, r := range rows {
			at, e := basis.Project(r)
			if e == nil && !(usable(at[0]) && usable(at[1])) {
				e = fmt.Errorf("holds what is not a number")
			}
			if e != nil && err == nil {
				err = fmt.Errorf("%s %d: %w", what, i, e)
			}
			out = append(out, at)
		}
		return out
	}

	out := &plane{project("image", in.Images), project("text before", in.Before), project("text after", in.After),
		in.Labels, basis.Explained}
	return out, err
}

// all draws all classes.
func (f *plane) all(canvas draw.Canvas, chart *plot.Plot) {
	for i, v := range f.images {
		glyph := groupStyle(f.labels[i]).glyph(cloudRadius(len(f.images)))
		glyph.Color = faint(groupStyle(f.labels[i]).color, 150)
		canvas.DrawGlyphNoClip(glyph, place(canvas, chart, v))
	}

	for k := range f.before {
		canvas.StrokeLines(moveLine, []vg.Point{place(canvas, chart, f.before[k]), place(canvas, chart, f.after[k])})
	}

	for k := range f.before {
		colour := groupStyle(k).color
		canvas.DrawGlyphNoClip(draw.GlyphStyle{Color: colour, Radius: 5, Shape: hollowStar{}},
			place(canvas, chart, f.before[k]))
		stamp(&canvas, draw.GlyphStyle{Color: colour, Radius: 5, Shape: star()}, place(canvas, chart, f.after[k]))
	}
}

// one draws a class.
func (f *plane) one(canvas draw.Canvas, chart *plot.Plot, class int) {
	var mean [2]float64
	n := 0.0
	glyph := imageGlyph
	glyph.Color, glyph.Radius = faint(greys[3], 160), cloudRadius(len(f.images))
	for i, v := range f.images {
		if f.labels[i] == class {
			canvas.DrawGlyphNoClip(glyph, place(canvas, chart, v))
			n++
			mean[0] += (v[0] - mean[0]) / n
			mean[1] += (v[1] - mean[1]) / n
		}
	}

	before, after := place(canvas, chart, f.before[class]), place(canvas, chart, f.after[class])
	canvas.StrokeLines(moveLine, []vg.Point{before, after})
	stamp(&canvas, beforeGlyph, before)
	stamp(&canvas, afterGlyph, after)
	if n > 0 { // on top, because training aims at this place
		stamp(&canvas, meanGlyph, place(canvas, chart, mean))
	}
}

// hollowStar is a star with a coloured edge.
type hollowStar struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (hollowStar) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	inner := style
	inner.Color, inner.Radius = paler, 0.62*style.Radius
	star().DrawGlyph(c, style, at)
	star().DrawGlyph(c, inner, at)
}
