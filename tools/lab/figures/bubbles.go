package figures

import (
	"fmt"
	"math"
	"slices"
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

// Bubbles show the examples per class and client: clients on x, classes on y from the first on top, and a bubble whose
// area grows with the count. pFedDC's figure 2 (a) shows the same numbers as shades. More than 100 clients or classes
// are merged into bins.
type Bubbles struct {
	Title   string
	Classes []string // of every panel; nil: numbers
	Panels  []BubblePanel
}

// maxBins is the largest number of separate rows or columns of bubbles.
const maxBins = 100

func (f Bubbles) kind() (string, int) { return "bubbles", len(f.Panels) }

func (f Bubbles) draw() (*sheet, error) {
	sheet := &sheet{title: f.Title}
	var domains numbering
	var drawn []bubbles
	most, clients, classes := 0, 1, 1
	for i, in := range f.Panels {
		if err := in.check(); err != nil {
			return nil, fmt.Errorf("panel %d: %w", i+1, err)
		}

		bins := binned(in)
		clients, classes = max(clients, len(bins.counts)), max(classes, len(bins.counts[0]))
		for k, row := range bins.counts {
			domain := 0
			if in.Domains != nil {
				domain = domains.of(in.Domains[k*bins.clientBin])
			}
			bins.domains = append(bins.domains, domain)
			most = max(most, slices.Max(row))
		}

		drawn = append(drawn, bins)
	}

	if most == 0 {
		return nil, fmt.Errorf("no client has examples")
	}

	side := vg.Length(300)
	if len(f.Panels) > 1 {
		side = 200
	}

	cell := max(5.2, min(18, side/vg.Length(max(clients, classes))))
	sheet.width, sheet.height = max(90, cell*vg.Length(clients)), max(70, cell*vg.Length(classes))
	radius := func(n int, x, y vg.Length) vg.Length { // of a bubble in a cell
		return 0.49 * min(x, y, 22) * vg.Length(math.Sqrt(float64(n)/float64(most)))
	}
	for i, bubbles := range drawn {
		n, m := len(bubbles.counts), len(bubbles.counts[0])
		rows := make([]string, m)
		for j := range rows {
			if rows[j] = binName(j, bubbles.classBin, len(f.Panels[i].Counts[0])); bubbles.classBin == 1 &&
				f.Classes != nil {
				rows[j] = f.Classes[j]
			}
		}

		columns := make([]string, n)
		for k := range columns {
			columns[k] = binName(k, bubbles.clientBin, len(f.Panels[i].Counts))
		}

		p := newMatrixPlot(rows, columns, sheet.width, sheet.height)
		p.X.Label.Text, p.Y.Label.Text = binLabel("client", bubbles.clientBin), binLabel("class", bubbles.classBin)
		p.Add(plotted(func(c draw.Canvas, p *plot.Plot) { bubbles.plot(c, p, radius) }))
		sheet.add(p, f.Panels[i].Title)
	}

	sheet.legend = domains.legend(func(label string, look style) entry { return dotEntry(label, look.color, 4) })

	// about the largest count whose bubble fits into a row of the legend, a quarter and a twentieth of it
	x, y := sheet.width/vg.Length(clients), sheet.height/vg.Length(classes)
	fits, last := float64(most)*min(1, math.Pow(float64(rowHeight/2/radius(most, x, y)), 2)), 0
	for _, part := range []float64{1, 0.25, 0.05} {
		unit := math.Pow(10, math.Floor(math.Log10(max(1, part*fits))))
		if n := int(math.Floor(part*fits/unit) * unit); n > 0 && n != last {
			what := " examples"
			if n == 1 {
				what = " example"
			}
			sheet.legend = append(sheet.legend, dotEntry(strconv.Itoa(n)+what, grey, radius(n, x, y)))
			last = n
		}
	}

	return sheet, nil
}

func (in *BubblePanel) check() error {
	if len(in.Counts) == 0 || len(in.Counts[0]) == 0 {
		return fmt.Errorf("no clients or no classes")
	}

	clients, classes := len(in.Counts), len(in.Counts[0])
	if clients > maxClients || classes > maxClients {
		return fmt.Errorf("%d clients and %d classes: give at most %d of each", clients, classes, maxClients)
	}

	for k, row := range in.Counts {
		if len(row) != classes {
			return fmt.Errorf("client %d has counts of %d classes, client 0 of %d", k, len(row), classes)
		}
	}

	return nil
}

func binLabel(what string, bin int) string {
	if bin == 1 {
		return what
	}
	return fmt.Sprintf("%s (in bins of %d)", what, bin)
}

// binName returns the number of a bin's single member, or of its first and last.
func binName(i, bin, all int) string {
	first, last := i*bin, min(all, (i+1)*bin)-1
	if first == last {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}

// bubbles are the counts of bins of clients and classes.
type bubbles struct {
	counts              [][]int
	domains             []int // of each bin's first client
	clientBin, classBin int
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

// plot draws circles on a grid.
func (b bubbles) plot(canvas draw.Canvas, p *plot.Plot, radius func(n int, x, y vg.Length) vg.Length) {
	toX, toY := p.Transforms(&canvas)
	line := draw.LineStyle{Color: paler, Width: 0.5}
	for k := range b.counts {
		canvas.StrokeLine2(line, toX(float64(k)), canvas.Min.Y, toX(float64(k)), canvas.Max.Y)
	}

	for j := range b.counts[0] {
		canvas.StrokeLine2(line, canvas.Min.X, toY(float64(j)), canvas.Max.X, toY(float64(j)))
	}

	for k, row := range b.counts {
		glyph := draw.GlyphStyle{Color: greys[b.domains[k]%len(greys)], Shape: draw.CircleGlyph{}}
		for j, n := range row {
			if n > 0 {
				glyph.Radius = max(0.35, radius(n, toX(1)-toX(0), toY(1)-toY(0)))
				canvas.DrawGlyphNoClip(glyph, vg.Point{X: toX(float64(k)), Y: toY(float64(len(row) - 1 - j))})
			}
		}
	}
}
