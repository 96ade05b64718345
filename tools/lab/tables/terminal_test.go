package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"promptfed/tools/lab/results"
)

// wide returns a table with n columns of an axis, or of metrics.
func wide(axis string, n int) *Table {
	t := &Table{Title: "T", Metric: "last5", RowAxes: []string{"method"}, ColAxes: []string{axis},
		Caption: []string{"what it is", "One seed: 1."}, Facts: []string{"One seed: 1."},
		Legend: Legend{Best: "the best."}}
	for j := range n {
		name := fmt.Sprintf("m%02d", j)
		switch j {
		case 2:
			name = "last5"
		case 5:
			name = "worst"
		case 6:
			name = "global"
		case 7:
			name = "bytes"
		}
		t.Columns = append(t.Columns, Head{Labels: []string{name}})
	}
	for i := range 3 {
		r := Row{Labels: []string{strings.Repeat("long name ", 3) + fmt.Sprint(i)}}
		for j := range n {
			r.Cells = append(r.Cells, Cell{Stat: results.Stat{Values: []float64{float64(10*i + j)}}, Factor: 1,
				Best: i == 2})
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// Five of ten metrics are shown: the table's own, then global, worst and bytes, and the first other one. Heads show
// windows that differ from the table's.
func TestFiveMetrics(t *testing.T) {
	m := wide(MetricAxis, 10)
	head := strings.Fields(strings.Split(m.Terminal(View{}), "\n")[1])
	if want := "method m00 last5 worst@last global@last bytes@all"; strings.Join(head, " ") != want || m.Hidden() != 5 {
		t.Errorf("%q, %d hidden; want %q", head, m.Hidden(), want)
	}
	if head := strings.Fields(strings.Split(m.Terminal(View{All: true}), "\n")[1]); len(head) != 11 {
		t.Errorf("%q", head)
	}
	m.Notes, m.Rows[0].Cells[0].Mark, m.Rows[0].Cells[9].Mark = []string{"here", "far"}, 1, 2
	if out := m.Terminal(View{}); !strings.Contains(out, "[1] here") || strings.Contains(out, "far") {
		t.Errorf("the note of a hidden column is shown:\n%s", out)
	}
	for j := range m.Rows { // a column with the same texts as an earlier one makes room for another
		m.Rows[j].Cells[6].Stat = m.Rows[j].Cells[2].Stat
	}
	head = strings.Fields(strings.Split(m.Terminal(View{}), "\n")[1])
	if want := "method m00 m01 last5 worst@last bytes@all"; strings.Join(head, " ") != want {
		t.Errorf("%q, want %q", head, want)
	}
}

// No line of a table is wider than the terminal, no column is lost, and definitions appear only on request.
func TestWidth(t *testing.T) {
	m := wide("beta", 12)
	for _, width := range []int{40, 60, 80, 120, 200} {
		out := m.Terminal(View{Width: width})
		for _, line := range strings.Split(out, "\n") {
			if n := text.RuneWidthWithoutEscSequences(line); n > width {
				t.Errorf("%d columns at a width of %d: %q", n, width, line)
			}
		}
		for _, h := range m.Columns {
			if strings.Count(out, h.Labels[0]) != 1 {
				t.Errorf("width %d: column %s stands %d times", width, h.Labels[0], strings.Count(out, h.Labels[0]))
			}
		}
		if strings.Contains(out, "what it is") || !strings.Contains(out, "One seed: 1.\n") ||
			!strings.Contains(out, "*: the best.\n") {
			t.Errorf("%s", out)
		}
	}
	if out := m.Terminal(View{Definitions: true}); strings.Count(out, "what it is") != 1 || strings.Count(out,
		"One seed") != 1 {
		t.Errorf("%s", out)
	}
}
