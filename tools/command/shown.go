package command

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"promptfed/tools/report/tables"
)

// shownFlags say how much of a report is printed.
type shownFlags struct{ all, definitions bool }

func (f *shownFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.all, "all-metrics", false, "print every metric")
	c.Flags().BoolVar(&f.definitions, "definitions", false, "print what each number is")
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
func (r *report) show(f shownFlags) {
	fmt.Print(r.text(tables.View{Width: width(), All: f.all, Definitions: f.definitions}))
}

func (r *report) text(v tables.View) string {
	var b strings.Builder
	hidden := 0
	for i, t := range r.main {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(t.Terminal(v))
		hidden += t.Hidden()
	}
	for _, n := range r.Notes {
		b.WriteString("note: " + n + "\n")
	}
	if hidden > 0 && !v.All {
		b.WriteString("More columns with --all-metrics; --definitions says what they are (also of promptfed report).\n")
	}
	return b.String()
}
