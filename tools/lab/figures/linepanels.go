package figures

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// linePanels lays out panels of lines. The last plotter of a line draws the line itself. Drawings of the other plotters
// lie under all lines.
func linePanels(title string, columns int, sameY bool, panels []LinePanel, colours Colours,
	plotters ...func(curve) plot.Plotter) (*Figure, error) {
	s := sheet{title: title, columns: columns}
	s.width, s.height = panelSize(len(panels))
	var order, lines numbering
	any := false
	common := map[bool]span{false: noSpan(), true: noSpan()} // of y, over logarithmic panels and over linear ones
	for i := range panels {
		if err := panels[i].check(); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}
		_, y, _ := panels[i].spans()
		all := common[panels[i].Y.Log]
		all.add(y.low, y.high)
		common[panels[i].Y.Log] = all
	}
	for i := range panels {
		in := &panels[i]
		x, y, values := in.spans()
		any = any || !x.empty()
		if sameY {
			y = common[in.Y.Log]
		}
		p := newPlot()
		in.Y.apply(&p.Y, y.padded(0.04, in.Y.Bounds, in.Y.Log), 5)
		if names := in.X.Names; len(names) > 0 {
			in.X.apply(&p.X, span{-0.4, float64(len(names)) - 0.6}, 0)
			nameX(&p.X, names, s.width)
			p.X.Scale = plot.LinearScale{}
		} else {
			in.X.apply(&p.X, x.padded(0.03, in.X.Bounds, in.X.Log), 6)
			if t := dataTicks(values); in.X.Format != nil {
				p.X.Tick.Marker = roomy(p, p.X.Tick.Marker, s.width)
			} else if t != nil {
				p.X.Tick.Marker = roomy(p, t, s.width)
			}
		}
		p.Add(gridLines{x: len(in.X.Names) == 0, y: true}, referenceLines(in.References))
		for _, plotter := range plotters {
			for j := range in.Lines {
				l := &in.Lines[j]
				p.Add(plotter(curve{in, l, j, len(in.Lines), colours.style(l.Label, order.of(l.Label))}))
			}
		}
		s.panels = append(s.panels, &panel{Plot: p, title: in.Title})
	}
	if !any {
		return nil, fmt.Errorf("no line has a point: every value is missing or not a number")
	}
	for _, in := range panels {
		for j, r := range in.References {
			if lines.of(r.Label) == len(s.legend) { // first use
				s.legend = append(s.legend, lineEntry(r.Label, referenceStyle(j), draw.GlyphStyle{}))
			}
		}
	}
	var own legend
	for i, label := range order.labels {
		if label != "" || len(order.labels) > 1 {
			own = append(own, lineEntry(label, colours.style(label, i).line(1.4), colours.style(label, i).glyph(2.6)))
		}
	}
	s.legend = append(own, s.legend...)
	return s.figure()
}

// panelSize returns the size of a data area among n.
func panelSize(n int) (width, height vg.Length) {
	switch {
	case n <= 1:
		return 290, 190
	case n == 2:
		return 220, 160
	case n <= 4:
		return 170, 130
	}
	return 140, 112
}

// roomy removes tick labels that would overlap the previous label.
func roomy(p *plot.Plot, t plot.Ticker, width vg.Length) plot.Ticker {
	var out plot.ConstantTicks
	last := -width
	for _, m := range t.Ticks(p.X.Min, p.X.Max) {
		if m.IsMinor() {
			out = append(out, m)
			continue
		}
		half := p.X.Tick.Label.Width(m.Label) / 2
		at := width * vg.Length(p.X.Norm(m.Value))
		if at-half < last+3 {
			m.Label = ""
		} else {
			last = at + half
		}
		out = append(out, m)
	}
	return out
}
