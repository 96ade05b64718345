package figures

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// BubblePanel is one partition of examples among clients.
type BubblePanel struct {
	Title   string
	Counts  [][]int  // [clients][classes], none negative
	Domains []string // nil, or the domain of each client, which sets the colour
}

// Bubbles show the examples per class and client: clients on x, classes on y, and a bubble whose area grows with the
// count. pFedDC's figure 2 (a) shows the same numbers as shades. More than 100 clients or classes are merged into bins.
type Bubbles struct {
	Title   string
	Columns int      // of panels; 0: automatic
	Classes []string // nil: numbers
	Panels  []BubblePanel
}

// maxBins is the largest number of separate rows or columns of bubbles.
const maxBins = 100

// Draw implements Drawer.
func (f Bubbles) Draw() (*Figure, error) {
	return drawn("bubbles", len(f.Panels), f.draw)
}

func (f Bubbles) draw() (*Figure, error) {
	s := sheet{title: f.Title, columns: f.Columns}
	var domains numbering
	var drawn []bubbles
	most, clients, classes := 0, 1, 1
	for i, in := range f.Panels {
		if err := in.check(f.Classes); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}
		b := binned(in)
		clients, classes = max(clients, len(b.counts)), max(classes, len(b.counts[0]))
		for _, row := range b.counts {
			for _, n := range row {
				most = max(most, n)
			}
		}
		b.domains = make([]int, len(b.counts))
		for k := range b.domains {
			if in.Domains != nil {
				b.domains[k] = domains.of(in.Domains[k*b.clientBin])
			}
		}
		drawn = append(drawn, b)
	}
	if most == 0 {
		return nil, fmt.Errorf("no client has examples")
	}
	side := vg.Length(300)
	if len(f.Panels) > 1 {
		side = 200
	}
	cell := max(5.2, min(18, side/vg.Length(max(clients, classes))))
	s.width, s.height = max(90, cell*vg.Length(clients)), max(70, cell*vg.Length(classes))
	for i, b := range drawn {
		b.most = float64(most)
		n, m := len(b.counts), len(b.counts[0])
		p := newPlot()
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(n)-0.5, -0.5, float64(m)-0.5
		p.X.Tick.Length, p.Y.Tick.Length = 2, 2
		p.X.Label.Text, p.Y.Label.Text = binLabel("client", b.clientBin), binLabel("class", b.classBin)
		nameX(&p.X, binNames(nil, n, b.clientBin, len(f.Panels[i].Counts)), s.width)
		nameY(&p.Y, binNames(f.Classes, m, b.classBin, len(f.Panels[i].Counts[0])), s.height, false)
		p.Add(b)
		s.panels = append(s.panels, &panel{Plot: p, title: f.Panels[i].Title})
	}
	for i, label := range domains.labels {
		s.legend = append(s.legend, glyphEntry(label, draw.GlyphStyle{Color: hues[i%len(hues)], Radius: 4,
			Shape: draw.CircleGlyph{}}))
	}
	radius := bubbleRadius(s.width/vg.Length(clients), s.height/vg.Length(classes))
	// fits is the part of the largest count whose bubble fits into a row of the legend
	fits := min(1, math.Pow(float64(rowHeight/2/radius), 2))
	for _, n := range sizesShown(int(fits * float64(most))) {
		r := radius * vg.Length(math.Sqrt(float64(n)/float64(most)))
		s.legend = append(s.legend, glyphEntry(strconv.Itoa(n)+" examples", draw.GlyphStyle{Color: grey, Radius: r,
			Shape: draw.CircleGlyph{}}))
	}
	return s.figure()
}

func (in *BubblePanel) check(names []string) error {
	if len(in.Counts) == 0 || len(in.Counts[0]) == 0 {
		return fmt.Errorf("no clients or no classes")
	}
	if len(in.Counts) > maxClients || len(in.Counts[0]) > maxClients {
		return fmt.Errorf("%d clients and %d classes: give at most %d of each", len(in.Counts), len(in.Counts[0]),
			maxClients)
	}
	classes := len(in.Counts[0])
	if names != nil && len(names) != classes {
		return fmt.Errorf("%d class names for %d classes", len(names), classes)
	}
	if in.Domains != nil && len(in.Domains) != len(in.Counts) {
		return fmt.Errorf("%d domains for %d clients", len(in.Domains), len(in.Counts))
	}
	for k, row := range in.Counts {
		if len(row) != classes {
			return fmt.Errorf("client %d has counts of %d classes, client 0 of %d", k, len(row), classes)
		}
		for _, n := range row {
			if n < 0 {
				return fmt.Errorf("client %d has a count below 0", k)
			}
		}
	}
	return nil
}

// sizesShown returns round counts for the legend: about the largest count, a quarter and a twentieth of it.
func sizesShown(most int) []int {
	var out []int
	for _, part := range []float64{1, 0.25, 0.05} {
		v := part * float64(most)
		unit := math.Pow(10, math.Floor(math.Log10(max(1, v))))
		n := int(math.Floor(v/unit) * unit)
		if n > 0 && (len(out) == 0 || n < out[len(out)-1]) {
			out = append(out, n)
		}
	}
	return out
}

func binLabel(what string, bin int) string {
	if bin == 1 {
		return what
	}
	return fmt.Sprintf("%s (in bins of %d)", what, bin)
}

// binNames returns the names of bins: the name of a single member, or the numbers of the first and the last member,
// counted from 1.
func binNames(names []string, bins, bin, all int) []string {
	out := make([]string, bins)
	for i := range out {
		first, last := i*bin, min(all, (i+1)*bin)-1
		switch {
		case bin == 1 && names != nil:
			out[i] = names[i]
		case first == last:
			out[i] = strconv.Itoa(first)
		default:
			out[i] = fmt.Sprintf("%d–%d", first, last)
		}
	}
	return out
}

// bubbles are the counts of bins of clients and classes.
type bubbles struct {
	counts              [][]int
	domains             []int // of each bin's first client
	clientBin, classBin int
	most                float64
}

// binned adds up counts so that at most maxBins of clients and of classes remain.
func binned(in BubblePanel) bubbles {
	n, m := len(in.Counts), len(in.Counts[0])
	b := bubbles{clientBin: (n + maxBins - 1) / maxBins, classBin: (m + maxBins - 1) / maxBins}
	for k, row := range in.Counts {
		if k%b.clientBin == 0 {
			b.counts = append(b.counts, make([]int, (m+b.classBin-1)/b.classBin))
		}
		for c, count := range row {
			b.counts[len(b.counts)-1][c/b.classBin] += count
		}
	}
	return b
}

// bubbleRadius returns the radius of the largest bubble.
func bubbleRadius(cellX, cellY vg.Length) vg.Length { return 0.49 * min(cellX, cellY, 22) }

// Plot implements plot.Plotter.
func (b bubbles) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	line := draw.LineStyle{Color: paler, Width: 0.5}
	for k := range b.counts {
		c.StrokeLine2(line, toX(float64(k)), c.Min.Y, toX(float64(k)), c.Max.Y)
	}
	for j := range b.counts[0] {
		c.StrokeLine2(line, c.Min.X, toY(float64(j)), c.Max.X, toY(float64(j)))
	}
	radius := bubbleRadius(toX(1)-toX(0), toY(1)-toY(0))
	for k, row := range b.counts {
		glyph := draw.GlyphStyle{Color: hues[b.domains[k]%len(hues)], Shape: draw.CircleGlyph{}}
		for j, n := range row {
			if n > 0 {
				glyph.Radius = max(0.35, radius*vg.Length(math.Sqrt(float64(n)/b.most)))
				c.DrawGlyphNoClip(glyph, vg.Point{X: toX(float64(k)), Y: toY(float64(j))})
			}
		}
	}
}
