package page

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"promptfed/tools/lab/results"
)

// tableView is a table for the template.
type tableView struct {
	ID             string
	Title, Caption string
	Over           []headView // upper line of the heading; empty for a table without upper headings
	Head           []headView
	Rows, Summary  [][]cellView
	Notes          []noteView
}

type headView struct {
	Name    string
	Column  int // -1 for a heading over several columns
	Columns int
	Lines   int
	Text    bool
	Meaning string
}

type cellView struct {
	Cell
	Key        string // sort key; empty means the text
	Text, Head bool
	Mark       string // letter of the footnote
}

type noteView struct{ Mark, Text string }

func viewTables(section string, tables []Table) (out []tableView) {
	for i, t := range tables {
		out = append(out, viewTable(fmt.Sprintf("%s-%d", section, i+1), t))
	}
	return out
}

func viewTable(id string, table Table) tableView {
	view := tableView{ID: id, Title: table.Title, Caption: table.Caption}
	two := slices.ContainsFunc(table.Columns, func(c Column) bool { return c.Over != "" })
	for i, c := range table.Columns {
		head := headView{Name: c.Name, Column: i, Columns: 1, Lines: 1, Text: c.Text, Meaning: c.Meaning}
		switch {
		case two && c.Over == "":
			head.Lines = 2
			view.Over = append(view.Over, head)
			continue
		case two && i > 0 && table.Columns[i-1].Over == c.Over:
			view.Over[len(view.Over)-1].Columns++
		case two:
			view.Over = append(view.Over, headView{Name: c.Over, Column: -1, Columns: 1, Lines: 1})
		}
		view.Head = append(view.Head, head)
	}

	for _, given := range table.Rows {
		row := make([]cellView, len(given.Cells))
		for i, cell := range given.Cells {
			c := table.Columns[i]
			row[i] = cellView{Cell: cell, Text: c.Text, Head: i == 0 && c.Text}
			if v, ok := sortValue(cell, c); ok {
				row[i].Key = strconv.FormatFloat(v, 'g', -1, 64)
			}

			if cell.Note != "" {
				k := slices.IndexFunc(view.Notes, func(n noteView) bool { return n.Text == cell.Note })
				if k < 0 {
					k, view.Notes = len(view.Notes), append(view.Notes, noteView{letters(len(view.Notes)), cell.Note})
				}
				row[i].Mark = view.Notes[k].Mark
			}
		}

		if given.Summary {
			view.Summary = append(view.Summary, row)
		} else {
			view.Rows = append(view.Rows, row)
		}
	}

	return view
}

// leading matches the number at the start of a text: "+8.00", "< 0.001", "−3 %".
var leading = regexp.MustCompile(`^[<>≤≥~ ]*([-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)`)

// sortValue returns a cell's sort key: its value, or in a column of numbers the number at the start of its text.
func sortValue(cell Cell, c Column) (float64, bool) {
	if cell.Value != nil {
		return *cell.Value, !math.IsNaN(*cell.Value) && !math.IsInf(*cell.Value, 0)
	}

	m := leading.FindStringSubmatch(cell.Text)
	if m == nil || c.Text {
		return 0, false
	}

	v, err := strconv.ParseFloat(strings.Replace(m[1], "−", "-", 1), 64)
	return v, err == nil
}

// letters returns the n-th of a, b, ... z, aa, ab.
func letters(n int) string {
	s := ""
	for n++; n > 0; n = (n - 1) / 26 {
		s = string(rune('a'+(n-1)%26)) + s
	}
	return s
}

// failureTables returns a table with a column per axis of the failed runs, or none.
func failureTables(runs []Run) []Table {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.State != results.Failed })
	if len(runs) == 0 {
		return nil
	}

	var axes []string
	for _, r := range runs {
		axes = results.AppendMissing(axes, results.SortedKeys(r.Labels)...)
	}

	var table Table
	for _, name := range slices.Concat([]string{"run"}, axes, []string{"error"}) {
		table.Columns = append(table.Columns, Column{Name: name, Text: true})
	}

	for _, r := range runs {
		cells := []Cell{{Text: r.Name}}
		for _, axis := range axes {
			cells = append(cells, Cell{Text: r.Labels[axis]})
		}
		table.Rows = append(table.Rows, Row{Cells: append(cells, Cell{Text: r.Why})})
	}

	return []Table{table}
}
