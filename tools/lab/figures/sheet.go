package figures

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Distances on a sheet, in points.
const (
	edge    vg.Length = 6  // around everything
	between vg.Length = 14 // panels
)

// maxPanels and maxSide limit the memory of a figure, maxNoteLines the room of its note.
const (
	maxNoteLines           = 12
	maxPanels              = 64
	maxSide      vg.Length = 4000
)

// panel is one set of axes with its title above.
type panel struct {
	*plot.Plot
	title string
	above vg.Length // room of the plot's own drawing, between the data area and the title
	x, y  string    // labels of the axes
}

// sheet is a grid of panels of one size, with a shared title above, legend, colour bar, and note below.
type sheet struct {
	title   string
	columns int       // at most so many panels side by side; 0: up to five
	width   vg.Length // of the data area of each panel
	height  vg.Length
	panels  []*panel
	legend  legend
	bar     *colourBar
	note    string
}

// add adds a panel.
func (s *sheet) add(p *plot.Plot, title string) {
	s.panels = append(s.panels, &panel{Plot: p, title: title, x: p.X.Label.Text, y: p.Y.Label.Text})
}

// gridColumns returns the number of panels side by side, for as few well-filled rows as possible.
func (s *sheet) gridColumns() int {
	n := len(s.panels)
	if s.columns > 0 || n <= 5 {
		return min(cmp.Or(s.columns, n), n)
	}
	return slices.MinFunc([]int{4, 5, 3}, func(a, b int) int { return cmp.Compare((a-n%a)%a, (b-n%b)%b) })
}

// margins are the sizes of the axes around a data area.
type margins struct{ left, right, bottom, top vg.Length }

// margins returns the plot's margins, which depend a little on the size of the whole.
func (p *panel) margins(width, height vg.Length) margins {
	var m margins
	for range 3 {
		var c draw.Canvas
		c.Max = vg.Point{X: width + m.left + m.right, Y: height + m.bottom + m.top}
		d := p.DataCanvas(c)
		m = margins{d.Min.X, c.Max.X - d.Max.X, d.Min.Y, c.Max.Y - d.Max.Y}
	}

	return m
}

// overhang returns the reach of bottom tick labels left of the data area, which the plot ignores.
func (p *panel) overhang(width vg.Length) vg.Length {
	far := vg.Length(0)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if at := p.X.Norm(t.Value); !t.IsMinor() && at >= 0 && at <= 1 {
			far = max(far, -vg.Length(at)*width-p.X.Tick.Label.Rectangle(t.Label).Min.X)
		}
	}
	return far
}

// grid is the layout of a sheet's panels.
type grid struct {
	margins []margins   // of each panel
	titles  [][]string  // of each panel, line by line
	x, y    []vg.Length // left end of each column's data areas; top end of each row's, from the top of the grid
	width   vg.Length
	height  vg.Length
}

func (s *sheet) arrange() grid {
	cols := s.gridColumns()
	rows := (len(s.panels) + cols - 1) / cols
	s.labelAxes(cols)
	var grid grid
	left, right := make([]vg.Length, cols), make([]vg.Length, cols)
	top, bottom := make([]vg.Length, rows), make([]vg.Length, rows)
	for i, p := range s.panels {
		m := p.margins(s.width, s.height)
		lines := wrap(p.title, panelTitle, s.width+10, 2)
		c, r := i%cols, i/cols
		left[c], right[c] = max(left[c], m.left, p.overhang(s.width)), max(right[c], m.right)
		top[r] = max(top[r], m.top, p.above+4+vg.Length(len(lines))*lineHeight(labelSize))
		bottom[r] = max(bottom[r], m.bottom)
		grid.margins, grid.titles = append(grid.margins, m), append(grid.titles, lines)
	}

	for c := range cols {
		grid.x = append(grid.x, grid.width+left[c])
		grid.width += left[c] + s.width + right[c] + between
	}

	for r := range rows {
		grid.y = append(grid.y, grid.height+top[r])
		grid.height += top[r] + s.height + bottom[r] + between*2/3
	}

	grid.width -= between
	grid.height -= between * 2 / 3
	return grid
}

var panelTitle = bold(letters(labelSize, draw.XCenter, draw.YBottom))

// labelAxes labels the axes. A label common to all panels stands only below the last panel of a column, or beside the
// first panel of a row.
func (s *sheet) labelAxes(cols int) {
	sameX, sameY := true, true
	for _, p := range s.panels {
		sameX, sameY = sameX && p.x == s.panels[0].x, sameY && p.y == s.panels[0].y
	}

	for i, p := range s.panels {
		p.X.Label.Text = shorten(p.x, p.X.Label.TextStyle, s.width+30)
		p.Y.Label.Text = shorten(p.y, p.Y.Label.TextStyle, s.height+20)
		if sameX && i+cols < len(s.panels) {
			p.X.Label.Text = ""
		}
		if sameY && i%cols > 0 {
			p.Y.Label.Text = ""
		}
	}
}

// forPage returns the figure for a page, which writes the title itself. With a width it has as few columns of panels as
// this width asks for and maxSide allows; it is nil if that does not make it narrower.
func (s *sheet) forPage(width vg.Length) (*Figure, error) {
	bare := *s
	bare.title = ""
	whole, err := bare.figure()
	if err != nil {
		return nil, err
	}

	figure := whole
	for n := s.gridColumns() - 1; width > 0 && n > 0 && figure.width > width; n-- {
		bare.columns = n
		narrower, err := bare.figure()
		if err != nil { // too high
			break
		}
		figure = narrower
	}

	if width > 0 && figure.width >= whole.width {
		return nil, nil
	}

	figure.title = clean(s.title)
	return figure, nil
}

// figure lays out the sheet.
func (s *sheet) figure() (*Figure, error) {
	if len(s.panels) > maxPanels {
		return nil, fmt.Errorf("%d panels are too many for one figure: give at most %d", len(s.panels), maxPanels)
	}

	grid := s.arrange()
	width, height := grid.width, grid.height
	barRoom := s.bar.width()
	width += barRoom

	rows, legendWidth := s.legend.rows(width)
	legendHeight := vg.Length(0)
	if len(rows) > 0 {
		width = max(width, legendWidth)
		legendHeight = vg.Length(len(rows))*rowHeight + 4
	}

	height += legendHeight
	titleStyle := bold(letters(titleSize, draw.XCenter, draw.YTop))
	title := wrap(s.title, titleStyle, width, 4)
	titleHeight := vg.Length(len(title)) * lineHeight(titleSize)
	if len(title) > 0 {
		titleHeight += 4
	}

	noteStyle := letters(smallSize, draw.XLeft, draw.YTop)
	note := wrap(s.note, noteStyle, width, maxNoteLines)
	height += titleHeight + vg.Length(len(note))*lineHeight(smallSize)
	width, height = width+2*edge, height+2*edge
	if width > maxSide || height > maxSide {
		return nil, fmt.Errorf("the figure would be %.0f x %.0f points, more than %.0f: give fewer panels or smaller "+
			"ones", width.Points(), height.Points(), maxSide.Points())
	}

	paint := func(canvas draw.Canvas) {
		canvas.SetColor(color.White)
		canvas.Fill(canvas.Rectangle.Path())
		top := height - edge
		write(canvas, titleStyle, vg.Point{X: width / 2, Y: top}, title)
		top -= titleHeight
		paintRows(canvas, rows, vg.Point{X: edge, Y: top}, width-2*edge)
		top -= legendHeight
		gridLeft := edge + (width-2*edge-grid.width-barRoom)/2
		cols := len(grid.x)
		s.labelAxes(cols) // another layout of the same panels may have changed them
		for i, p := range s.panels {
			x, y := gridLeft+grid.x[i%cols], top-grid.y[i/cols]
			m := grid.margins[i]
			area := draw.Canvas{Canvas: canvas.Canvas}
			area.Min = vg.Point{X: x - m.left, Y: y - s.height - m.bottom}
			area.Max = vg.Point{X: x + s.width + m.right, Y: y + m.top}
			p.Draw(area)
			up := p.above + 3 + vg.Length(len(grid.titles[i])-1)*lineHeight(labelSize)
			write(canvas, panelTitle, vg.Point{X: x + s.width/2, Y: y + up}, grid.titles[i])
		}

		if s.bar != nil {
			area := draw.Canvas{Canvas: canvas.Canvas}
			area.Min = vg.Point{X: gridLeft + grid.width, Y: top - grid.y[len(grid.y)-1] - s.height}
			area.Max = vg.Point{X: area.Min.X + barRoom, Y: top - grid.y[0]}
			s.bar.paint(area)
		}

		write(canvas, noteStyle, vg.Point{X: edge, Y: edge + vg.Length(len(note))*lineHeight(smallSize)}, note)
	}

	return &Figure{width: width, height: height, title: clean(s.title), paint: paint, sheet: s}, nil
}
