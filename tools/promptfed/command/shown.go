package command

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"promptfed/tools/lab/report"
	"promptfed/tools/lab/tables"
)

// shownFlags say how much of a report is printed.
type shownFlags struct{ all, definitions bool }

func (f *shownFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.all, "all-metrics", false, "print every metric")
	c.Flags().BoolVar(&f.definitions, "definitions", false, "explain each number")
}

// plainWidth is how wide tables are where no terminal shows them.
const plainWidth = 120

// width is that of the terminal that standard output is shown on, or what COLUMNS says.
func width() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, _ := term.GetSize(int(os.Stdout.Fd()))
	return cmp.Or(n, plainWidth)
}

// show prints the main tables of a report, and its notes.
func (f shownFlags) show(r *report.Report) {
	fmt.Print(r.Text(tables.View{Width: width(), All: f.all, Definitions: f.definitions}))
}

func percent(v float64) string { return fmt.Sprintf("%.2f", 100*v) }

// align sets rows in columns; the first row is the header, the first two columns are text.
func align(rows [][]string) string { return tables.Plain(rows, 2) }
