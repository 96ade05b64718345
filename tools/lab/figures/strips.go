package figures

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Styles of a client's value in a strip.
const (
	StripPoints = "points" // the default
	StripBars   = "bars"
	StripBlocks = "blocks" // one row of cells coloured by value
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

// Strips show one value per client, group by group, with the mean of each group. FedAPPR's figure 2 has 100 clients in
// four groups of 25, each with a backbone. Panels stand below each other unless Columns is set.
type Strips struct {
	Title   string
	Columns int
	X       string // "client" if empty
	Y       Axis
	As      string // StripPoints, StripBars or StripBlocks
	Panels  []StripPanel
}

// maxClients is the largest number of clients in a strip.
const maxClients = 10_000

// Draw implements Drawer.
func (f Strips) Draw() (*Figure, error) {
	return drawn("strips", len(f.Panels), f.draw)
}

func (f Strips) draw() (*Figure, error) {
	switch f.As {
	case "", StripPoints, StripBars, StripBlocks:
	default:
		return nil, fmt.Errorf("unknown form %q: take %s, %s or %s", f.As, StripPoints, StripBars, StripBlocks)
	}
	if f.Y.Log {
		return nil, fmt.Errorf("a strip has no logarithmic axis: leave Log out")
	}
	s := sheet{title: f.Title, columns: max(1, f.Columns)}
	most := 1
	all := noSpan()
	for i, in := range f.Panels {
		n := 0
		for _, g := range in.Groups {
			n += len(g.Values)
			all.add(g.Values...)
		}
		if n == 0 || n > maxClients {
			return nil, fmt.Errorf("panel %d has %d clients: give 1 to %d", i+1, n, maxClients)
		}
		most = max(most, n)
	}
	if all.empty() {
		return nil, fmt.Errorf("no client has a value: every one is missing or not a number")
	}
	s.width, s.height = min(760, max(300, 5*vg.Length(most))), 130
	if len(f.Panels) > 1 {
		s.height = 90
	}
	y := all
	if f.As == StripBars {
		y.add(0)
	}
	y = y.padded(0.05, f.Y.Bounds, false)
	if f.As == StripBars && y.low < 0 && all.low >= 0 {
		y.low = 0
	}
	var colours *scale
	if f.As == StripBlocks {
		var err error
		if colours, err = newScale("", all, [2]float64{}); err != nil {
			return nil, err
		}
		s.height, s.bar = 44, &colourBar{colours, f.Y.Label}
	}
	var groups numbering
	var bands []strip
	written := true // every group's name fits above its clients
	for _, in := range f.Panels {
		p := newPlot()
		band := strip{as: f.As, scale: colours}
		n := 0
		for _, g := range in.Groups {
			band.groups = append(band.groups, stripGroup{g, n, seriesStyle(groups.of(g.Label)).color})
			n += len(g.Values)
		}
		f.Y.apply(&p.Y, y, 4)
		p.X.Label.Text = f.X
		if f.X == "" {
			p.X.Label.Text = "client"
		}
		p.X.Min, p.X.Max = -0.5, float64(n)-0.5
		nameX(&p.X, counted(n), s.width)
		if f.As == StripBlocks {
			p.Y.Label.Text, p.Y.Min, p.Y.Max, p.Y.Tick.Marker = "", 0, 1, plot.ConstantTicks{}
		}
		for _, g := range in.Groups {
			room := s.width * vg.Length(len(g.Values)) / vg.Length(n)
			written = written && letters(tickSize, 0, 0).Width(clean(g.Label))+2 <= room
		}
		bands = append(bands, band)
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	named := len(groups.labels) > 1 || groups.labels[0] != ""
	for i, p := range s.panels {
		if bands[i].named = named && written; bands[i].named {
			p.above = nameRoom
		}
		p.Add(bands[i])
	}
	if named && !written {
		for i, label := range groups.labels {
			s.legend = append(s.legend, glyphEntry(label, draw.GlyphStyle{Color: seriesStyle(i).color, Radius: 3,
				Shape: draw.CircleGlyph{}}))
		}
	}
	return s.figure()
}

type stripGroup struct {
	StripGroup
	first int // index of its first client
	color color.NRGBA
}

// mean returns the mean of the finite values, or false without any.
func (g stripGroup) mean() (float64, bool) {
	sum, n := 0.0, 0
	for _, v := range g.Values {
		if usable(v) {
			sum += v
			n++
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// strip is the clients of one panel, with their groups on bands of two shades.
type strip struct {
	as     string
	groups []stripGroup
	scale  *scale // of blocks
	named  bool   // write the groups' names
}

// nameRoom is the height above the data for the names of groups.
const nameRoom vg.Length = 14

// Plot implements plot.Plotter.
func (s strip) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for i, g := range s.groups {
		if len(g.Values) == 0 {
			continue
		}
		left, right := toX(float64(g.first)-0.5), toX(float64(g.first+len(g.Values))-0.5)
		if i%2 == 0 && s.as != StripBlocks {
			c.SetColor(paler)
			c.Fill(vg.Rectangle{Min: vg.Point{X: left, Y: c.Min.Y}, Max: vg.Point{X: right, Y: c.Max.Y}}.Path())
		}
		if s.named {
			c.FillText(coloured(letters(tickSize, draw.XCenter, draw.YBottom), g.color), vg.Point{X: (left + right) / 2,
				Y: c.Max.Y + 4.5}, clean(g.Label))
		}
	}
	if s.as != StripBlocks {
		gridLines{y: true}.Plot(c, p)
	}
	for _, g := range s.groups {
		cell := toX(1) - toX(0)
		left, right := toX(float64(g.first)-0.5), toX(float64(g.first+len(g.Values))-0.5)
		for j, v := range g.Values {
			x := toX(float64(g.first + j))
			switch column := (vg.Rectangle{Min: vg.Point{X: x - cell/2, Y: c.Min.Y}, Max: vg.Point{X: x + cell/2,
				Y: c.Max.Y}}); {
			case !usable(v):
				if s.as == StripBlocks {
					hatch(c, column)
				}
			case s.as == StripBlocks:
				c.SetColor(s.scale.colour(v))
				c.Fill(column.Path())
			case s.as == StripBars:
				bar := inset(column, min(0.8, cell*0.12))
				bar.Min.Y, bar.Max.Y = c.Min.Y, toY(v)
				if p.Y.Min < 0 {
					bar.Min.Y, bar.Max.Y = min(toY(0), toY(v)), max(toY(0), toY(v))
				}
				c.SetColor(g.color)
				c.Fill(bar.Path())
			default:
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: g.color, Radius: min(2.4, max(1, cell*0.4)),
					Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: toY(v)})
			}
		}
		if mean, ok := g.mean(); ok && s.as != StripBlocks {
			c.StrokeLine2(draw.LineStyle{Color: ink, Width: 1.1, Dashes: dashes[1]}, left, toY(mean), right, toY(mean))
		}
		if s.as == StripBlocks && g.first > 0 {
			c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: 1.5}, left, c.Min.Y-3, left, c.Max.Y+3)
		}
	}
}
