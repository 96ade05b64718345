package tables

import (
	"slices"

	"promptfed/configs"
	"promptfed/tools/lab/results"
)

// Pseudo-axes: their labels are not points of a grid but numbers that every run has.
const (
	// each domain; also Average and Std over domains, and Overall, the mean over clients
	DomainAxis = configs.DomainAxis
	SetAxis    = configs.SetAxis    // each evaluation set, and Average over them
	MetricAxis = configs.MetricAxis // each of Layout.Metrics
	// EvaluationAxis is global and personal; it also heads the labels that say which of the two a row or a column is
	// of.
	EvaluationAxis = "evaluation"
)

// Labels with a meaning of their own. Std and Overall are those of the axis of domains.
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
	Metric  string   // as results.ParseMetric reads it
	Metrics []string // of the axis of metrics
	Average string   // row, column, both or empty
	Card    *configs.PaperTable
	Smoke   bool // the runs are a small form of the experiment: differences from the paper mean nothing
	Second  bool // mark the second best too
}

// Table is a table with its cells, ready to be written in any format.
type Table struct {
	Title   string
	Metric  string   // as it is asked for
	Caption []string // sentences: what the numbers are, how they were averaged
	Facts   []string // those of them that a reader of the numbers needs in any case
	Legend  Legend
	RowAxes []string // heads of the columns that hold row labels
	ColAxes []string
	Columns []Head
	Rows    []Row
	Notes   []string // what the marks [1], [2] and on say
	Remarks []string // sentences from the card: what is wrong with the paper, what differs here
	second  bool
	axes    []string // of the grid, for the CSV
	views   []string // evaluations that cells are of
	// severalData says that cells which would compare are of runs on different data or partitions.
	severalData bool
}

// Legend explains what formats show in their own ways; empty where a table has nothing of the kind.
type Legend struct{ Best, Second, Paper string }

// Sentences are the caption with the legend, each part behind the word for how it is shown; without a word it is left
// out.
func (t *Table) Sentences(best, second, paper string) []string {
	out := slices.Clone(t.Caption)
	for _, l := range [][2]string{{best, t.Legend.Best}, {second, t.Legend.Second}, {paper, t.Legend.Paper}} {
		if l[0] != "" && l[1] != "" {
			out = append(out, l[0]+": "+l[1])
		}
	}
	return out
}

// Head is the labels of a column, one for each axis in the columns.
type Head struct {
	Labels  []string
	Average bool
}

// Row is a line of a table.
type Row struct {
	Labels  []string
	Average bool
	Cells   []Cell // one per column
}

// Cell is a number over seeds.
type Cell struct {
	Labels  map[string]string // by axis, of the row and the column
	Metric  results.Metric
	Stat    results.Stat
	Blank   bool // nothing was planned here
	Planned int  // seeds
	Best    bool
	Second  bool
	Paper   *Number
	Factor  float64 // what the values are multiplied by where they are shown
	Unit    string  // in which they are shown then
	Mark    int     // number of the note that explains what is missing; 0 for none
	View    string  // results.GlobalView or results.PersonalView; empty for what belongs to neither
	Absent  bool    // the method does not have that evaluation
	why     string  // what that note says
	data    string  // what clients were tested on: cells of other data do not compare
}

// Number is a number of a paper, in the unit in which the cell is shown.
type Number struct {
	Mean, Std  float64
	HasStd     bool
	Comparable bool // the difference between ours and it means something
}

// Mean is the cell's mean in the unit in which it is shown; NaN without a value.
func (c Cell) Mean() float64 { return c.Factor * c.Stat.Mean() }

// Std is the sample standard deviation likewise; NaN with less than two seeds.
func (c Cell) Std() float64 { return c.Factor * c.Stat.Std() }
