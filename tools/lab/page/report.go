package page

import (
	"encoding/json"
	"strings"
)

// Report is the content of a page. Empty fields leave their sections out. All texts are plain texts, which the page
// escapes. Numbers have the unit in which they are shown (accuracies in percent).
type Report struct {
	Title    string
	Subtitle string
	Notes    []string // a paragraph each, under the tables

	Card         *Card
	Definitions  []Pair   // of columns of tables, and what they mean
	Reading      []string // sentences about several tables
	Tables       []Table
	Significance []Table
	Figures      []Figure

	Metrics []Metric // metrics of the curves in the order of the chooser; the first is shown
	Runs    []Run
	Methods []string // in the order of their colours; other methods follow
	Live    bool     // a server sends changes, and details of runs
	Version string   // version of a live page, for requests of later changes

	Environment []Pair
	Failures    []Failure
}

// Card names the reproduced item of a paper.
type Card struct {
	Paper, Item, Title string
	Wrong              []string // known errors in the paper's numbers, a sentence each
	Differs            []Difference
}

// Difference is a difference between paper and configuration, in sentences.
type Difference struct{ Paper, Here, Why string }

// Table is sortable by any of its columns.
type Table struct {
	Title   string
	Caption string
	Columns []Column
	Rows    []Row
}

// Column is a column's heading.
type Column struct {
	Name    string
	Over    string // heading above this one; neighbours with the same one share it
	Text    bool   // left-aligned; numbers are right-aligned
	Meaning string // may be empty
}

// Row has one cell per column. Missing cells at its end are blank.
type Row struct {
	Cells   []Cell
	Summary bool // an average: always below the other rows
}

// Cell is one cell of a table.
type Cell struct {
	Text  string   // "83.12 ± 0.41"
	Value *float64 // sort key; nil: the number at the start of Text in a column of numbers, else Text
	Bold  bool     // the best of its group
	Paper string   // the paper's number, shown beside the cell
	Note  string   // a footnote under the table: "2 of 3 seeds"
}

// Figure is an image in the page. Nothing in it can run or load anything.
type Figure struct {
	Title      string
	Caption    string
	About      string  // text in place of the image; empty means Title
	SVG        []byte  // a whole SVG file
	Width      float64 // of it, in points; 0 if unknown
	Phone      []byte  // nil, or a narrower form for small screens
	PhoneWidth float64
}

// Size is the CSS class of a figure: wide for one that needs a whole row, and long for one that a phone scrolls.
func (f Figure) Size() string {
	phone := f.PhoneWidth
	if phone == 0 {
		phone = f.Width
	}
	var out []string
	if f.Width > 420 {
		out = append(out, "wide")
	}
	if phone > 500 {
		out = append(out, "long")
	}
	return strings.Join(out, " ")
}

// Metric is a quantity over the rounds.
type Metric struct {
	Name  string `json:"name"`  // such as "accuracy"; Curve.Metric refers to it
	Title string `json:"title"` // such as "Accuracy"; empty means Name
	Unit  string `json:"unit"`  // "%", "bytes", "s" or empty
}

// Run is one training run.
type Run struct {
	ID    string `json:"id"`    // unique in the report and stable between reports; empty means Name
	Name  string `json:"name"`  // unique in the report
	Group string `json:"group"` // name of the experiment; empty means Name
	// Experiment is equal exactly for runs that differ only in the seed. It is empty for a run that is not one of
	// several seeds.
	Experiment string       `json:"experiment"`
	Method     string       `json:"method"` // for runs without a label "method"
	Sweep      string       `json:"sweep"`
	Seed       int64        `json:"seed"`
	State      string       `json:"state"`   // "done", or the progress
	Why        string       `json:"why"`     // reason of a state other than done, one line
	Planned    int          `json:"planned"` // rounds; 0 if unknown
	Tags       list[string] `json:"tags"`
	Labels     labels       `json:"labels"` // the sweep's axes, such as method: FedPHA

	Config string  `json:"-"` // YAML
	Curves []Curve `json:"-"`
	// PerClient is one metric of every client; nil if it was not recorded.
	PerClient *ClientCurves `json:"-"`
	Classes   []string      `json:"-"`
	Clients   []Client      `json:"-"`
	Facts     []Pair        `json:"-"` // other facts about the run, such as its start
	Log       []string      `json:"-"` // lines
	Confusion *Confusion    `json:"-"`
	Terms     []Term        `json:"-"`
}

// Confusion holds the entries of a confusion matrix: true class, predicted class, examples.
type Confusion struct {
	Classes  list[string] `json:"classes"`
	Global   [][3]int64   `json:"global"` // nil for a method without this evaluation
	Personal [][3]int64   `json:"personal"`
}

// Term is one term of the loss over rounds. Unknown values are NaN.
type Term struct {
	Name     string    `json:"name"`
	Rounds   list[int] `json:"x"`
	Value    numbers   `json:"value"`
	Norm     numbers   `json:"norm"`     // of the gradient
	Relative numbers   `json:"relative"` // Norm divided by cross entropy's norm
}

// Curve is one metric over the rounds of a run.
type Curve struct {
	Metric string
	Rounds []int
	Values []float64 // one per round; NaN for a missing value
}

// ClientCurves has a value per tested round and client.
type ClientCurves struct {
	Metric string
	Rounds []int
	Values [][]float64 // [round][client]; NaN for a client without a test
}

// Client is the data of a client.
type Client struct {
	Backbone string
	Domain   string
	Train    []int // examples per class; nil if unknown
	Val      []int
	Test     []int
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }

type labels []Pair

// MarshalJSON writes an object.
func (l labels) MarshalJSON() ([]byte, error) {
	out := map[string]string{}
	for _, p := range l {
		out[p.Name] = p.Value
	}
	return json.Marshal(out)
}

// Failure is a run that ended with an error.
type Failure struct {
	Run    string
	Labels []Pair
	Error  string // one line
}
