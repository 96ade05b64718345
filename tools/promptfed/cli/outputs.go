package cli

import (
	"cmp"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// Outputs makes reports of finished runs and sends running ones to experiment trackers. The program passes it to the
// commands that train, so that they import no code that draws, compares or exports.
type Outputs struct {
	// Report writes tables, figures and a page about the runs and sweeps in dirs into the folder out.
	Report func(dirs []string, out string) (Report, error)
	// TrackerHelp is the help text of a flag with the names of trackers, and CheckTrackers reports unknown names.
	TrackerHelp   string
	CheckTrackers func(names []string) error
	// OpenTrackers begins to send a run in the folder dir to the named trackers and to those of its configuration. If
	// an opened tracker fails, the run continues without it, and warn gets a line about it.
	OpenTrackers func(names []string, dir string, t *experiment.Task, warn func(string)) (Tracker, error)
}

// Tracker receives the rounds of a run. Close receives the error with which the run ended.
type Tracker interface {
	Round(record.Record)
	Close(err error) error
}

// Report is a written report, and with --json the result of the commands that write one.
type Report struct {
	Folder       string       `json:"folder"`
	Page         string       `json:"page"` // path of report.html; empty without one
	Files        []string     `json:"files"`
	Failed       []FailedCell `json:"failed"`
	WaitingCells int          `json:"waiting_cells"` // unfinished cells of other parts of the sweep
	Content      any          `json:"report" shape:"report.json"`
	// Text returns the main tables.
	Text func(View) string `json:"-"`
}

// FailedCell is a cell of a sweep that failed.
type FailedCell struct {
	Cell   string `json:"cell"` // its folder, below the sweep's
	Reason string `json:"reason"`
}

// View says how much of a report is printed.
type View struct{ All, Definitions bool }

// AddFlags adds the flags --all-metrics and --definitions.
func (v *View) AddFlags(c *cobra.Command) {
	c.Flags().BoolVar(&v.All, "all-metrics", false, "print every metric")
	c.Flags().BoolVar(&v.Definitions, "definitions", false, "explain each number")
}

// plainWidth is the width of tables without a terminal.
const plainWidth = 120

// Width returns the value of the variable COLUMNS, or the width of the terminal of standard output.
func Width() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, _ := term.GetSize(int(os.Stdout.Fd()))
	return cmp.Or(n, plainWidth)
}
