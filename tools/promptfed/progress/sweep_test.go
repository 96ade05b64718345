package progress

import (
	"strings"
	"testing"

	"promptfed/configs"
)

// A reason is told with the first cell that failed for it.
func TestFailedCells(t *testing.T) {
	text := said(t, func() {
		d := NewSweep(&configs.Sweep{Name: "s"}, 0, nil, 1)
		for _, f := range [][2]string{{"a", "no data"}, {"b", "no data"}, {"c", "no space"}} {
			d.Failed(configs.Cell{Folder: f[0]}, f[1])
		}
		Quiet.Store(true) // hides notes, and no warnings
		defer Quiet.Store(false)
		c := d.Cell(configs.Cell{Folder: "d"}, nil)
		c.Warn("below zero-shot")
		c.Warn("below zero-shot")
		c.Note("a note")
	})
	if strings.Contains(text, "a note") {
		t.Errorf("--quiet prints notes:\n%s", text)
	}
	wanted := []string{"a failed: no data\n", "b failed: for the same reason as a\n", "c failed: no space\n",
		"warning: below zero-shot\n"}
	for _, want := range wanted {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, text)
		}
	}
}
