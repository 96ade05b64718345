package page

// Report is what a page shows. Sections whose fields are empty are left out. Every text is plain text: the page escapes
// it. Numbers are in the unit in which they are shown (accuracies in percent).
type Report struct {
	Title    string
	Subtitle string
	Notes    []string // a paragraph each, under the tables

	Card         *Card
	Tables       []Table
	Significance []Table
	Figures      []Figure

	Metrics []Metric // what curves are of, in the order of the chooser; the first is shown
	Runs    []Run
	Methods []string // in the order of their colours; those of runs that are not listed come after
	Live    bool     // a server tells the page what changes, and details of runs
	Version string   // of a live page: what it is called where the server is asked for changes since

	Environment []Pair
	Failures    []Failure
}

// Card says which item of which paper is reproduced.
type Card struct {
	Paper, Item, Title string
	Wrong              []string // what is known to be wrong with the paper's numbers, a sentence each
	Differs            []string // where the configuration differs from the paper, a sentence each
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
	Name string
	Over string // heading above this one; neighbours with the same one share it
	Text bool   // left-aligned; numbers are right-aligned
}

// Row has a cell per column; cells that are missing at its end are blank.
type Row struct {
	Cells   []Cell
	Summary bool // an average: stays below the other rows however these are sorted
}

// Cell is what a table shows in one place.
type Cell struct {
	Text  string   // "83.12 ± 0.41"
	Value *float64 // what it is sorted by; nil is the number that Text starts with, in a column of numbers, else Text
	Bold  bool     // the best of its kind
	Paper string   // the paper's own number, shown beside ours
	Note  string   // a footnote under the table: "2 of 3 seeds"
}

// Figure is a drawing that stands in the page as an image of its own: nothing in it can run or load anything.
type Figure struct {
	Title   string
	Caption string
	SVG     []byte // a whole SVG file
}

// Metric is one kind of number that is followed over the rounds.
type Metric struct {
	Name  string // "accuracy"; Curve.Metric refers to it
	Title string // "Accuracy"; empty is Name
	Unit  string // "%", "bytes", "s" or empty
}

// Run is one training run.
type Run struct {
	ID      string // unique in the report and the same in the next; empty is Name
	Name    string // unique in the report
	Method  string // of runs without a label of that name
	Sweep   string
	State   string // "done", or how far it came
	Why     string // of a state other than done, one line
	Planned int    // rounds; 0 where unknown
	Tags    []string
	Group   string // name of the experiment; empty is Name
	// Experiment is equal for runs that differ in nothing but the seed, and for no others; empty for a run that is none
	// of several seeds.
	Experiment string
	Seed       int64
	Labels     []Pair // the sweep's axes: method, FedPHA
	Config     string // YAML
	Curves     []Curve
	// PerClient is one metric of every client; nil where it was not kept.
	PerClient *ClientCurves
	Classes   []string
	Clients   []Client
	Facts     []Pair   // what else is known of the run, such as when it began
	Log       []string // lines
	Confusion *Confusion
	Terms     []Term
}

// Confusion says how often which class was taken for which: class, class that it was taken for, examples.
type Confusion struct {
	Classes  []string   `json:"classes"`
	Global   [][3]int64 `json:"global"` // nil where the method has no such evaluation
	Personal [][3]int64 `json:"personal"`
}

// Term is one term of the loss over rounds; what is unknown is NaN.
type Term struct {
	Name                  string
	Rounds                []int
	Value, Norm, Relative []float64 // Norm is its gradient's length, Relative that over cross entropy's
}

// Curve is one metric over the rounds of a run.
type Curve struct {
	Metric string
	Rounds []int
	Values []float64 // one per round; NaN where there is none
}

// ClientCurves has a value per tested round and client.
type ClientCurves struct {
	Metric string
	Rounds []int
	Values [][]float64 // [round][client]; NaN where a client was not tested
}

// Client is what a client holds.
type Client struct {
	Backbone string
	Domain   string
	Train    []int // examples per class; nil where unknown
	Val      []int
	Test     []int
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }

// Failure is a run that ended with an error.
type Failure struct {
	Run    string
	Labels []Pair
	Error  string // one line
}
