package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"promptfed/runtime/tensor"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Significance is a matrix of methods. A cell shows the advantage of the row's method over the column's method, with
// stars for its significance.
type Significance struct {
	Title      string
	Value      string // meaning of the difference, such as "difference of accuracy (points)"
	Names      []string
	Difference [][]float64 // [row][column]: mean of the row's method minus mean of the column's
	P          [][]float64 // [row][column]: p values of the differences; no mark for values that are not numbers
	Test       string      // the test, or the reason for its absence; may be empty
}

func (f Significance) kind() (string, int) { return "significance", len(f.Names) }

// key explains the stars, or states why no cell can have stars.
func (f Significance) key() string {
	key := "* p < 0.05, ** p < 0.01, *** p < 0.001"
	if tested := slices.ContainsFunc(slices.Concat(f.P...), usable); f.Test != "" && tested {
		key += ": " + f.Test
	} else if f.Test != "" {
		key = f.Test
	}
	return key + "."
}

// stars returns the stars of a p value, none for NaN.
func stars(p float64) (out string) {
	for _, level := range []float64{0.05, 0.01, 0.001} {
		if p < level {
			out += "*"
		}
	}
	return out
}

func (f Significance) draw() (*sheet, error) {
	n := len(f.Names)
	if n > maxRows {
		return nil, fmt.Errorf("%d methods: give 1 to %d", n, maxRows)
	}

	heatMap := HeatMap{Title: f.Title, Value: f.Value, RowNames: f.Names, ColumnNames: f.Names, differences: true,
		note: "Row minus column. " + f.key(), Panels: []HeatPanel{{}}}
	largest := 0.0
	for i, row := range f.Difference {
		row = slices.Clone(row)
		row[i] = math.NaN() // a method against itself
		marks := make([]string, n)
		for j, p := range f.P[i] {
			if marks[j] = stars(p); usable(row[j]) {
				largest = max(largest, math.Abs(row[j]))
			}
		}
		heatMap.Panels[0].Values, heatMap.marks = append(heatMap.Panels[0].Values, row), append(heatMap.marks, marks)
	}

	if largest == 0 {
		largest = 1
	}

	heatMap.Scale = [2]float64{-largest, largest}
	return heatMap.draw()
}

// Ranks is a critical-difference diagram (Demsar, JMLR 7, 2006, figure 1): methods on an axis of mean ranks, the best
// on the left, with a bar under methods that do not differ significantly.
type Ranks struct {
	Title      string
	Names      []string  // two or more
	Mean       []float64 // mean ranks of the names, 1 the best
	Difference float64   // critical difference of two mean ranks; NaN if unknown
	Note       string    // source of the difference, such as the test and its p value; may be empty
}

// Distances of a diagram, in points.
const (
	rankAxis   vg.Length = 330 // length of the axis
	rankHead   vg.Length = 34  // above the axis, for its numbers and the critical difference
	rankBar    vg.Length = 5   // from a bar to the next
	rankName   vg.Length = 130 // largest width of a line of a name
	rankNumber vg.Length = 22  // room of a mean rank beside a name
	rankLines            = 4   // largest number of lines of a name
	rankApart  vg.Length = 3   // keeps names of several lines apart, for each further line
)

func (f Ranks) kind() (string, int) { return "ranks", len(f.Names) }

func (f Ranks) draw() (*sheet, error) {
	n := len(f.Names)
	if n > maxRows {
		return nil, fmt.Errorf("%d methods: give at most %d", n, maxRows)
	}

	diagram := diagram{difference: f.Difference, side: rankNumber + 6, row: lineHeight(tickSize)}
	style := letters(tickSize, draw.XLeft, middle)
	for _, i := range tensor.Order(n, func(a, b int) int { return cmp.Compare(f.Mean[a], f.Mean[b]) }) {
		name := wrap(f.Names[i], style, rankName, rankLines)
		diagram.names, diagram.mean = append(diagram.names, name), append(diagram.mean, f.Mean[i])
		diagram.row = max(diagram.row, vg.Length(len(name))*(lineHeight(tickSize)+rankApart)-rankApart)
		for _, line := range name {
			diagram.side = max(diagram.side, style.Width(line)+rankNumber+6)
		}
	}

	diagram.bars = alike(diagram.mean, f.Difference)
	p := newPlot()
	p.HideAxes()
	p.Add(diagram)
	s := &sheet{title: f.Title, width: rankAxis + 2*diagram.side, note: f.Note,
		height: rankHead + diagram.below() + vg.Length((n+1)/2)*diagram.row}
	s.add(p, "")
	return s, nil
}

// alike returns the first and last indices of the longest runs of two or more sorted mean ranks that lie closer
// together than the difference. No run lies inside another.
func alike(mean []float64, difference float64) [][2]int {
	var out [][2]int
	end := 0
	for i := range mean {
		j := i
		for j+1 < len(mean) && mean[j+1]-mean[i] < difference {
			j++
		}
		if j > i && j > end {
			out = append(out, [2]int{i, j})
		}
		end = max(end, j)
	}

	return out
}

// diagram paints names, sorted by mean rank.
type diagram struct {
	names      [][]string // line by line
	mean       []float64
	difference float64
	bars       [][2]int
	side       vg.Length // room for names on each side of the axis
	row        vg.Length // from a name to the next
}

// below returns the height between the axis and the first names.
func (d diagram) below() vg.Length { return vg.Length(len(d.bars))*rankBar + 12 }

// Plot implements plot.Plotter.
func (d diagram) Plot(canvas draw.Canvas, _ *plot.Plot) {
	n := len(d.mean)
	left, right := canvas.Min.X+d.side, canvas.Max.X-d.side
	across := func(rank float64) vg.Length { return left + (right-left)*vg.Length((rank-1)/float64(n-1)) }
	axis := canvas.Max.Y - rankHead
	thin, thick := draw.LineStyle{Color: ink, Width: 0.6}, draw.LineStyle{Color: ink, Width: 2}
	leader := draw.LineStyle{Color: grey, Width: 0.5}
	rows := axis - d.below()
	name := letters(tickSize, draw.XLeft, middle)

	for i, rank := range d.mean {
		row, onLeft := i, i < (n+1)/2
		if !onLeft {
			row = n - 1 - i
		}
		y, edge, out := rows-(vg.Length(row)+0.5)*d.row, left-4, vg.Length(-1)
		name.XAlign = draw.XRight
		if !onLeft {
			edge, out, name.XAlign = right+4, 1, draw.XLeft
		}
		canvas.StrokeLines(leader, []vg.Point{{X: across(rank), Y: axis}, {X: across(rank), Y: y}, {X: edge, Y: y}})
		canvas.FillText(coloured(name, grey), vg.Point{X: edge + 2*out, Y: y}, number(rank, 1))
		y += vg.Length(len(d.names[i])-1) / 2 * lineHeight(tickSize)
		write(canvas, name, vg.Point{X: edge + out*rankNumber, Y: y}, d.names[i])
	}

	for i, b := range d.bars {
		y := axis - 6 - vg.Length(i)*rankBar
		canvas.StrokeLine2(thick, across(d.mean[b[0]])-2, y, across(d.mean[b[1]])+2, y)
	}

	canvas.StrokeLine2(thin, left, axis, right, axis)
	label := letters(smallSize, draw.XCenter, draw.YBottom)
	for _, t := range (evenTicks{n: 10, whole: true}).Ticks(1, float64(n)) {
		canvas.StrokeLine2(thin, across(t.Value), axis, across(t.Value), axis+3)
		canvas.FillText(label, vg.Point{X: across(t.Value), Y: axis + 5}, t.Label)
	}

	if math.IsNaN(d.difference) {
		return
	}

	text := "critical difference " + number(d.difference, 2)
	if d.difference > float64(n-1) {
		canvas.FillText(label, vg.Point{X: (left + right) / 2, Y: axis + 20}, text+", more than there are ranks")
		return
	}

	end := across(1 + d.difference)
	canvas.StrokeLine2(thin, left, axis+18, end, axis+18)
	for _, at := range []vg.Length{left, end} {
		canvas.StrokeLine2(thin, at, axis+16, at, axis+20)
	}

	label.XAlign = draw.XLeft
	canvas.FillText(label, vg.Point{X: left, Y: axis + 22}, text)
}
