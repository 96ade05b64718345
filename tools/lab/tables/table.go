package tables

import (
	"iter"
	"slices"

	"promptfed/configs"
	"promptfed/tools/lab/results"
)

// Pseudo-axes: their labels are not points of the grid, but numbers of every run.
const (
	// each domain; also Average and Std over domains, and Overall, the mean over clients
	DomainAxis = configs.DomainAxis
	SetAxis    = configs.SetAxis    // each evaluation set, and Average over them
	MetricAxis = configs.MetricAxis // each of Layout.Metrics
	// EvaluationAxis has the labels global and personal. It also heads the labels that name the evaluation of a row or
	// column.
	EvaluationAxis = "evaluation"
)

// Labels with a special meaning. Std and Overall belong to the axis of domains.
const (
	AverageLabel = configs.AverageLabel
	StdLabel     = "Std"
	OverallLabel = "Overall"
)

// Layout places axes in rows and columns.
type Layout struct {
	Title   string
	Rows    []string // axes
	Columns []string // axes; axes in neither are averaged over
	Metric  string   // a name for results.ParseMetric
	Metrics []string // labels of the axis of metrics
	Average string   // row, column, both or empty
	Card    *configs.PaperTable
	Smoke   bool // the runs are a reduced form of the experiment, so differences from the paper have no meaning
	Second  bool // also mark the second best
}

// Table is a table with its cells, ready for any format.
type Table struct {
	Title       string
	Metric      string      // the given name
	Caption     []string    // sentences: the meaning of the numbers and their averaging
	Definitions [][2]string // of Caption: heads of columns and their meanings
	Facts       []string    // sentences of Caption that every reader of the numbers needs
	Legend      Legend
	RowAxes     []string // heads of the columns that hold row labels
	ColAxes     []string
	Columns     []Head
	Rows        []Row
	Notes       []string // texts for the marks [1], [2] and so on
	Remarks     []string // sentences from the card: errors in the paper, and differences in this reproduction
	second      bool
	axes        []string // of the grid, for the CSV
	views       []string // evaluations of the cells
	// severalData reports that otherwise comparable cells come from runs on different data or partitions.
	severalData bool
}

// Legend explains the emphasis, which depends on the format; empty fields mean no such emphasis.
type Legend struct{ Best, Second, Paper string }

// Sentences returns the caption with the legend. Each part of the legend begins with the given word for its emphasis,
// and is omitted without a word.
func (t *Table) Sentences(best, second, paper string) []string {
	out := slices.Clone(t.Caption)
	for _, l := range [][2]string{{best, t.Legend.Best}, {second, t.Legend.Second}, {paper, t.Legend.Paper}} {
		if l[0] != "" && l[1] != "" {
			out = append(out, l[0]+": "+l[1])
		}
	}
	return out
}

// cells iterates over the cells of all rows.
func (t *Table) cells() iter.Seq[*Cell] {
	return func(yield func(*Cell) bool) {
		for _, r := range t.Rows {
			for j := range r.Cells {
				if !yield(&r.Cells[j]) {
					return
				}
			}
		}
	}
}

// addRow adds a row of texts: labels, then cells.
func (t *Table) addRow(texts []string) {
	r := Row{Labels: texts[:len(t.RowAxes)]}
	for _, text := range texts[len(t.RowAxes):] {
		r.Cells = append(r.Cells, Cell{Literal: text})
	}
	t.Rows = append(t.Rows, r)
}

// addColumns adds columns of texts.
func (t *Table) addColumns(heads ...string) {
	for _, h := range heads {
		t.Columns = append(t.Columns, Head{Labels: []string{h}})
	}
}

// Head is the labels of a column, one for each axis in the columns.
type Head struct {
	Labels  []string
	Average bool
}

// Row is a row of a table.
type Row struct {
	Labels  []string
	Average bool
	Cells   []Cell // one per column
}

// Cell is a number over seeds, or a text.
type Cell struct {
	Literal string            // the text of a cell of data without seeds; empty for a number
	Labels  map[string]string // by axis, of the row and the column
	Metric  results.Metric
	Stat    results.Stat
	Blank   bool // no planned runs
	Planned int  // seeds
	Best    bool
	Second  bool
	Paper   *Number
	Factor  float64 // factor from values to displayed values
	Unit    string  // of displayed values
	Mark    int     // number of the note that explains what is missing; 0 for none
	View    string  // results.GlobalView or results.PersonalView; empty for metrics without evaluations
	Absent  bool    // the method does not have that evaluation
	why     string  // text of that note
	data    string  // test data of the clients: cells with different data are not comparable
	groups  []*results.Group
}

// Number is a number of a paper, in the displayed unit of the cell.
type Number struct {
	Mean, Std  float64
	HasStd     bool
	Comparable bool // the difference from our number is meaningful
}

// Mean returns the cell's mean in the displayed unit; NaN without a value.
func (c Cell) Mean() float64 { return c.Factor * c.Stat.Mean() }

// Std returns the sample standard deviation in the displayed unit; NaN for fewer than two seeds.
func (c Cell) Std() float64 { return c.Factor * c.Stat.Std() }
