package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// StripGroup is the values of the clients of one group, such as a backbone, in order.
type StripGroup struct {
	Label  string
	Values []float64
}

// StripPanel is one strip of all clients.
type StripPanel struct {
	Title  string
	Groups []StripGroup
}

// Strips show one point per client, group by group, with the mean of each group. FedAPPR's figure 2 has 100 clients in
// four groups of 25, each with a backbone. Panels stand below each other.
type Strips struct {
	Title   string
	Y       Axis    // not logarithmic
	Colours Colours // of the titles of panels; shapes distinguish groups
	Panels  []StripPanel
}

// maxClients is the largest number of clients in a strip.
const maxClients = 10_000

// nameRoom is the height above the data for the names of groups.
const nameRoom vg.Length = 14

func (f Strips) kind() (string, int) { return "strips", len(f.Panels) }

func (f Strips) draw() (*sheet, error) {
	sheet := &sheet{title: f.Title, columns: 1, height: 130}
	if len(f.Panels) > 1 {
		sheet.height = 90
	}

	all, counts, most := noSpan(), make([]int, len(f.Panels)), 1
	for i, in := range f.Panels {
		for _, g := range in.Groups {
			counts[i] += len(g.Values)
			all.add(g.Values...)
		}
		if counts[i] == 0 || counts[i] > maxClients {
			return nil, fmt.Errorf("panel %d has %d clients: give 1 to %d", i+1, counts[i], maxClients)
		}
		most = max(most, counts[i])
	}

	if all.empty() {
		return nil, fmt.Errorf("no client has a value: every one is missing or not a number")
	}

	sheet.width = min(760, max(300, 5*vg.Length(most)))
	var groups numbering
	written := true // every group's name fits above its clients
	for i, in := range f.Panels {
		p := newPlot()
		f.Y.apply(&p.Y, all.padded(0.05, f.Y), 4)
		p.X.Label.Text, p.X.Min, p.X.Max = "client", -0.5, float64(counts[i])-0.5
		nameX(&p.X, counted(counts[i]), sheet.width)
		for _, g := range in.Groups {
			groups.of(g.Label)
			room := sheet.width * vg.Length(len(g.Values)) / vg.Length(counts[i])
			written = written && letters(tickSize, 0, 0).Width(clean(g.Label))+2 <= room
		}
		sheet.add(p, in.Title)
	}

	named := groups.named()
	for i, p := range sheet.panels {
		if named && written {
			p.above = nameRoom
		}
		p.Add(plotted(func(c draw.Canvas, p *plot.Plot) {
			f.Panels[i].plot(c, p, f.Colours.style(f.Panels[i].Title, 0), &groups, named && written)
		}))
	}

	if named && !written {
		sheet.legend = groups.legend(func(label string, look style) entry { return glyphEntry(label, look.glyph(3)) })
	}

	return sheet, nil
}

// plot draws the clients, with their groups on bands of two shades.
func (in StripPanel) plot(canvas draw.Canvas, chart *plot.Plot, look style, groups *numbering, named bool) {
	toX, toY := chart.Transforms(&canvas)
	cell := toX(1) - toX(0)
	bands, first := make([]vg.Rectangle, len(in.Groups)), 0
	for i, stripGroup := range in.Groups {
		bands[i] = vg.Rectangle{Min: vg.Point{X: toX(float64(first) - 0.5), Y: canvas.Min.Y}}
		first += len(stripGroup.Values)
		bands[i].Max = vg.Point{X: toX(float64(first) - 0.5), Y: canvas.Max.Y}
		if len(stripGroup.Values) == 0 {
			continue
		}

		if i%2 == 0 {
			fill(canvas, bands[i], paler)
		}

		if named {
			style := letters(tickSize, draw.XCenter, draw.YBottom)
			canvas.FillText(style, vg.Point{X: (bands[i].Min.X + bands[i].Max.X) / 2, Y: canvas.Max.Y + 4.5},
				clean(stripGroup.Label))
		}
	}

	gridLines(false, true).Plot(canvas, chart)
	for i, g := range in.Groups {
		glyph := draw.GlyphStyle{Color: look.color, Radius: min(2.4, max(1, cell*0.4)),
			Shape: draw.CircleGlyph{}}
		if !named {
			glyph.Shape = groupStyle(groups.of(g.Label)).shape
		}

		mean, n := 0.0, 0.0
		for j, v := range g.Values {
			if usable(v) {
				canvas.DrawGlyphNoClip(glyph, vg.Point{X: bands[i].Min.X + cell*(vg.Length(j)+0.5), Y: toY(v)})
				n++
				mean += (v - mean) / n
			}
		}

		if n > 0 {
			canvas.StrokeLine2(draw.LineStyle{Color: ink, Width: 1.1, Dashes: dashes[1]}, bands[i].Min.X, toY(mean),
				bands[i].Max.X, toY(mean))
		}
	}
}
