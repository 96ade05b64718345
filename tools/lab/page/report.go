package page

import (
	"encoding/json"
	"strings"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/results"
)

// Report is the content of a page. Empty fields leave their sections out. All texts are plain texts, which the page
// escapes. Numbers have the unit in which they are shown (accuracies in percent).
type Report struct {
	Title    string
	Subtitle string
	Notes    []string // a paragraph each, under the tables

	Card         *configs.PaperTable // the reproduced item of a paper
	Definitions  []Pair              // of columns of tables, and what they mean
	Reading      []string            // sentences about several tables
	Tables       []Table
	Significance []Table
	Figures      []Figure

	Metrics []Metric // metrics of the curves in the order of the chooser; the first is shown
	Runs    []Run
	Panels  []Panel
	Methods []string // in the order of their colours
	Live    bool     // a server sends changes, and details of runs
	Version string   // version of a live page, for requests of later changes

	Environment []Pair
}

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

// Row has one cell per column.
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
	Title string `json:"title"` // such as "Accuracy"
	Unit  string `json:"unit"`  // "%", "bytes", "s" or empty
	// Headline metrics are of each run's headline evaluation: means mix no two.
	Headline bool `json:"headline,omitempty"`
}

// Run is the JSON form of a results.Run, with its names in the report.
type Run struct {
	results.RunJSON
	Name  string `json:"name"`  // unique in the report
	Group string `json:"group"` // name of the experiment
	// Experiment is equal exactly for runs that differ only in the seed.
	Experiment string `json:"experiment"`
	Method     string `json:"method"`
	Sweep      string `json:"sweep"`
	Planned    int    `json:"planned"`        // rounds; 0 if unknown
	View       string `json:"view,omitempty"` // headline evaluation
	// Sign is the time of the last sign of life and Left the remaining time of a run without a result on a live page.
	Sign   string            `json:"sign,omitempty"`
	Left   string            `json:"left,omitempty"`
	Tags   list[string]      `json:"tags"`
	Labels map[string]string `json:"labels"` // by the sweep's axes
	Curves list[Curve]       `json:"curves"`
	// PerClient is one metric of every client; nil if it was not recorded.
	PerClient *ClientCurves `json:"clients,omitempty"`
	// Details are the facts and the data of panels by their names, which a live page requests.
	Details json.RawMessage     `json:"details,omitempty"`
	Config  string              `json:"-"` // YAML
	Clients *experiment.Clients `json:"-"` // nil if unknown
}

// Curve is one metric over the rounds of a run.
type Curve struct {
	Metric string          `json:"metric"`
	Rounds list[int]       `json:"x"`
	Values results.Numbers `json:"y"` // one per round
}

// ClientCurves has a value per client and tested round.
type ClientCurves struct {
	Metric string            `json:"metric"`
	Rounds list[int]         `json:"x"`
	Values []results.Numbers `json:"y"` // [client][round]
}

// Panel is a part of the page about one run. The script assets/panels/NAME.js draws it.
type Panel struct {
	Name  string
	Title string // empty: the script writes one
	Half  bool   // beside another one, where the window has room
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }
