package figures

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Cell is a place in a matrix, counted from 0.
type Cell struct{ Row, Column int }

// HeatPanel is one matrix.
type HeatPanel struct {
	Title  string
	Values [][]float64 // [rows][columns], the first row on top; cells that are not numbers are hatched
	Frames []Cell      // cells with a black frame
}

// HeatMap shows matrices as coloured cells on one scale, such as the accuracies of all combinations of prompt lengths
// (FedPHA's figures 4 and 8, SDFed's figure 5), with a panel for each length of the first domain.
type HeatMap struct {
	Title         string
	X, Y          string // meaning of columns and rows
	ColumnNames   []string
	RowNames      []string
	Value         string     // meaning of the colour
	Scale         [2]float64 // of the colours; equal numbers: the range of all values
	WithoutValues bool       // do not write values into cells, even where they fit
	Panels        []HeatPanel

	differences bool       // blue and red colours
	marks       [][]string // of the only panel's cells, under their values, which then have a sign
	note        string
}

// smallCell is the largest side of cells without a gap between them, which would hide their colours.
const smallCell vg.Length = 6

// maxCells is the largest number of rows or columns of a matrix.
const maxCells = 512

func (f HeatMap) kind() (string, int) { return "heat map", len(f.Panels) }

func (f HeatMap) draw() (*sheet, error) {
	rows, cols := len(f.RowNames), len(f.ColumnNames)
	if rows == 0 || cols == 0 || rows > maxCells || cols > maxCells {
		return nil, fmt.Errorf("%d row names and %d column names: give 1 to %d of each", rows, cols, maxCells)
	}

	values := noSpan()
	for _, p := range f.Panels {
		for _, row := range p.Values {
			values.add(row...)
		}
	}

	colours, err := newScale(f.differences, values, f.Scale)
	if err != nil {
		return nil, err
	}

	w, h := f.cellSize()
	s := &sheet{title: f.Title, width: w * vg.Length(cols), height: h * vg.Length(rows),
		bar: &colourBar{colours, f.Value}, note: f.note}
	places := f.places(w, h)
	for _, in := range f.Panels {
		p := newMatrixPlot(f.RowNames, f.ColumnNames, s.width, s.height)
		p.X.Label.Text, p.Y.Label.Text = f.X, f.Y
		p.Add(plotted(func(c draw.Canvas, p *plot.Plot) { f.plot(c, p, in, colours, places) }))
		s.add(p, in.Title)
	}

	return s, nil
}

// cellSize returns the size of a cell: nearly square, and smaller for more cells and panels.
func (f HeatMap) cellSize() (width, height vg.Length) {
	n, rows, cols := len(f.Panels), len(f.RowNames), len(f.ColumnNames)
	side := vg.Length(280)
	switch {
	case f.marks != nil:
		side = max(330, 15*vg.Length(cols)) // two lines of text
	case n > 4:
		side = 150
	case n > 1:
		side = 190
	}

	side = max(side, min(640, 6*vg.Length(max(rows, cols))))
	width, height = min(34, side/vg.Length(cols)), min(34, side/vg.Length(rows))
	return min(width, 1.7*height), min(height, 1.7*width)
}

// newMatrixPlot returns a plot with names below and beside cells at the integers, the first row on top.
func newMatrixPlot(rows, cols []string, width, height vg.Length) *plot.Plot {
	p := newPlot()
	p.X.Min, p.X.Max = -0.5, float64(len(cols))-0.5
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
	p.X.Tick.Length, p.Y.Tick.Length = 2, 2
	nameX(&p.X, cols, width)
	nameY(&p.Y, rows, height)
	return p
}

// places returns the number of decimals that fit into every cell: one, none, or -1 for no value at all.
func (f HeatMap) places(width, height vg.Length) int {
	if f.marks != nil {
		width, height = width-3, height/2
	}

	if height < smallSize+1 || f.WithoutValues {
		return -1
	}

	for _, n := range []int{1, 0} {
		widest := vg.Length(0)
		for _, p := range f.Panels {
			for _, v := range slices.Concat(p.Values...) {
				if usable(v) {
					widest = max(widest, letters(smallSize, 0, 0).Width(number(v, n)))
				}
			}
		}
		if widest+1.5 <= width {
			return n
		}
	}

	return -1
}

// plot draws a panel. Without values, cells of the lowest colour are one area, and equal neighbours another: large
// matrices with few values stay small files.
func (f HeatMap) plot(canvas draw.Canvas, p *plot.Plot, in HeatPanel, colours *scale, places int) {
	toX, toY := p.Transforms(&canvas)
	at := func(row, column int) vg.Rectangle {
		x, y := float64(column), float64(len(in.Values)-1-row)
		return vg.Rectangle{Min: vg.Point{X: toX(x - 0.5), Y: toY(y - 0.5)},
			Max: vg.Point{X: toX(x + 0.5), Y: toY(y + 0.5)}}
	}

	style := letters(smallSize, draw.XCenter, middle)
	if f.WithoutValues {
		fill(canvas, canvas.Rectangle, colours.colour(colours.low))
	}

	for i, row := range in.Values {
		for j := 0; j < len(row); j++ {
			value, area := row[j], at(i, j)
			for f.WithoutValues && j+1 < len(row) && (row[j+1] == value || !usable(value) && !usable(row[j+1])) {
				j++
				area.Max = at(i, j).Max
			}

			switch {
			case !usable(value):
				hatch(canvas, area)
				continue
			case f.WithoutValues && value == colours.low:
				continue
			}

			if area.Max.X-area.Min.X > smallCell && area.Max.Y-area.Min.Y > smallCell {
				area = inset(area, 0.25)
			}

			fill(canvas, area, colours.colour(value))
			var lines []string
			if places >= 0 {
				lines = []string{number(value, places)}
			}

			if f.marks != nil && value > 0 && lines != nil {
				lines[0] = "+" + lines[0]
			}

			if f.marks != nil && f.marks[i][j] != "" {
				lines = append(lines, f.marks[i][j])
			}

			at := area.Min.Add(area.Max).Scale(0.5)
			at.Y += vg.Length(len(lines)-1) / 2 * lineHeight(smallSize)
			write(canvas, coloured(style, over(colours.colour(value))), at, lines)
		}
	}

	canvas.SetLineStyle(draw.LineStyle{Color: color.Black, Width: 1.5})
	for _, cell := range in.Frames {
		canvas.Stroke(inset(at(cell.Row, cell.Column), 0.5).Path())
	}
}

// fill fills a rectangle.
func fill(c draw.Canvas, r vg.Rectangle, colour color.Color) {
	c.SetColor(colour)
	c.Fill(r.Path())
}

func inset(r vg.Rectangle, by vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: r.Min.Add(vg.Point{X: by, Y: by}), Max: r.Max.Sub(vg.Point{X: by, Y: by})}
}

// hatch marks a cell without a value: grey with slanted lines.
func hatch(c draw.Canvas, r vg.Rectangle) {
	r = inset(r, 0.25)
	fill(c, r, paler)
	w, h := r.Max.X-r.Min.X, r.Max.Y-r.Min.Y
	step := max(2.5, (w+h)/10)
	for d := step; d < w+h; d += step {
		// the line x + y = d inside the rectangle
		x0, x1 := max(0, d-h), min(w, d)
		c.StrokeLine2(draw.LineStyle{Color: grey, Width: 0.4}, r.Min.X+x0, r.Min.Y+d-x0, r.Min.X+x1,
			r.Min.Y+vg.Length(math.Max(0, float64(d-x1))))
	}
}
