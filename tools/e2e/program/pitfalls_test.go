package program

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every file of configs/pitfalls is a sweep over three seeds or more with a description, has a small form without
// requirements, and is in docs/pitfalls.md with its command. Its small form runs to the end.
func TestPitfalls(t *testing.T) {
	files, err := filepath.Glob("../../../configs/pitfalls/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files in configs/pitfalls: %v", len(files), err)
	}
	page := read(t, "../../../docs/pitfalls.md")
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		plain, small := bothForms(t, path)
		if plain.Name != "pitfall-"+name || len(plain.Seeds) < 3 {
			t.Errorf("%s has the name %s and %d seeds", path, plain.Name, len(plain.Seeds))
		}
		if c := plain.Card; c == nil || c.Title == "" || len(c.Rows) == 0 || c.Metric == "" {
			t.Errorf("%s: card %+v; title, rows and metric are needed", path, c)
		}
		if command := "promptfed sweep configs/pitfalls/" + name + ".yaml"; strings.Count(string(page), command) == 0 {
			t.Errorf("docs/pitfalls.md does not say: %s", command)
		}
		if len(small.Cells) > 3 {
			t.Errorf("%s: the small form has %d cells", path, len(small.Cells))
		}
		for _, cell := range append(small.Cells, plain.Cells...) {
			if cell.Config.Data.Set != "synthetic" || !strings.HasPrefix(cell.Config.Backbones[0], "tiny-") {
				t.Errorf("%s: cell %s reads %s on %s", path, cell.Folder, cell.Config.Data.Set, cell.Config.Backbones)
			}
		}
		if testing.Short() {
			continue
		}
		out := smoke(t, path)
		said := read(t, out, "tables.md")
		again := false // the small form reproduces a defect, and the table names it
		for _, cell := range small.Cells {
			again = again || len(cell.Config.Reproduces()) > 0
		}
		if again != strings.Contains(string(said), "Known defects of published code, reproduced on purpose: ") {
			t.Errorf("%s: makes defects again is %v, but the table says:\n%s", path, again, said)
		}
	}
}
