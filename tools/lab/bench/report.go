package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"promptfed/runtime/ort"
	"strings"
	"text/tabwriter"
)

// Report is the result of a measurement.
type Report struct {
	Title   string   `json:"title"`
	Tables  []*Table `json:"tables"`
	Targets []Target `json:"targets,omitempty"`
	// Graphs counts what this process compiled.
	Graphs ort.CacheCounts `json:"graphs"`
}

// Table is a table of a report. A cell is a text, a whole number, a Timing or a Number.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
}

// Number is a number with the format of its text.
type Number struct {
	Value  float64
	Format string
}

func (n Number) String() string { return fmt.Sprintf(n.Format, n.Value) }

// MarshalJSON writes the number without its format, and null for one that is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(n.Value) || math.IsInf(n.Value, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

func factor(v float64) Number     { return Number{v, "%.2fx"} }
func percent(v float64) Number    { return Number{v, "%.0f %%"} }
func tenths(v float64) Number     { return Number{v, "%.1f"} }
func scientific(v float64) Number { return Number{v, "%.0e"} }

// megabytes returns a number of bytes in MB.
func megabytes(bytes int64) int64 { return bytes / 1e6 }

// table adds a table.
func (r *Report) table(columns []string, notes ...string) *Table {
	table := &Table{Columns: columns, Notes: notes}
	r.Tables = append(r.Tables, table)
	return table
}

// add appends a row.
func (t *Table) add(cells ...any) { t.Rows = append(t.Rows, cells) }

// Target is a performance target of the project.
type Target struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// atLeast adds a target that a larger number meets too.
func (r *Report) atLeast(what string, want, got float64) {
	r.Targets = append(r.Targets, Target{what, want, got, got >= want})
}

// atMost adds a target that a smaller number meets too.
func (r *Report) atMost(what string, want, got float64) {
	r.Targets = append(r.Targets, Target{what, want, got, got <= want})
}

// Text returns the report for a terminal.
func (r Report) Text() string {
	var out strings.Builder
	fmt.Fprintln(&out, r.Title)
	tables := r.Tables
	if len(r.Targets) > 0 {
		targets := &Table{Columns: []string{"target", "", "wanted", ""}}
		for _, t := range r.Targets {
			met := map[bool]string{true: "met", false: "missed"}[t.Met]
			targets.add(t.What, fmt.Sprintf("%.3g", t.Got), t.Want, met)
		}
		tables = append(tables[:len(tables):len(tables)], targets)
	}

	for _, table := range tables {
		fmt.Fprintln(&out)
		writer := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(writer, strings.Join(table.Columns, "\t"))
		for _, row := range table.Rows {
			for i, cell := range row {
				if i > 0 {
					fmt.Fprint(writer, "\t")
				}
				fmt.Fprint(writer, cell)
			}
			fmt.Fprintln(writer)
		}

		writer.Flush()
		for _, n := range table.Notes {
			fmt.Fprintln(&out, n)
		}
	}

	g := r.Graphs
	fmt.Fprintf(&out, "\ngraphs: %d compiled, %d reused, %d dropped for room; %d MB without a session\n", g.Compiled,
		g.Reused, g.Dropped, megabytes(int64(g.IdleBytes)))
	if g.Captured > 0 {
		fmt.Fprintf(&out, "captured on the device: %d graphs of fixed sizes\n", g.Captured)
	}

	if r := g.Refusal(); r != "" {
		fmt.Fprintln(&out, r)
	}

	return out.String()
}
