package page

import (
	"math"
	"testing"
)

func TestSortValue(t *testing.T) {
	nan, three := math.NaN(), 3.0
	for _, c := range []struct {
		cell Cell
		text bool
		want float64
		ok   bool
	}{
		{Cell{Text: "9", Value: &three}, false, 3, true},
		{Cell{Text: "9", Value: &nan}, false, nan, false},
		{Cell{Text: "< 0.001"}, false, 0.001, true},
		{Cell{Text: "−3.5 ± 0.1"}, false, -3.5, true},
		{Cell{Text: "+8e-3"}, false, 0.008, true},
		{Cell{Text: "failed"}, false, 0, false},
		{Cell{Text: ""}, false, 0, false},
		{Cell{Text: "16 shots"}, true, 0, false},
	} {
		if v, ok := sortValue(c.cell, Column{Text: c.text}); ok != c.ok || ok && v != c.want {
			t.Errorf("%q sorts by %g, %v; want %g, %v", c.cell.Text, v, ok, c.want, c.ok)
		}
	}
}

func TestLetters(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 51: "az", 52: "ba", 701: "zz",
		702: "aaa"} {
		if got := letters(n); got != want {
			t.Errorf("%d is %s; want %s", n, got, want)
		}
	}
}

// Only neighbours share headings above columns, and cells with equal notes share footnotes.
func TestHeadingsAndNotes(t *testing.T) {
	v := viewTable("x", Table{Columns: []Column{{Name: "a", Over: "A"}, {Name: "b", Over: "A"}, {Name: "c"},
		{Name: "d", Over: "A"}},
		Rows: []Row{{Cells: []Cell{{Note: "one"}, {Note: "two"}, {}, {}}}, {Cells: []Cell{{Note: "two"}, {}, {}, {}}}}})
	if len(v.Over) != 3 || v.Over[0].Columns != 2 || v.Over[1].Lines != 2 || v.Over[2].Columns != 1 ||
		len(v.Head) != 3 {
		t.Errorf("headings %+v over %+v", v.Over, v.Head)
	}
	if len(v.Notes) != 2 || v.Rows[0][1].Mark != "b" || v.Rows[1][0].Mark != "b" {
		t.Errorf("notes %+v", v.Notes)
	}
}
