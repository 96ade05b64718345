package page

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const configA = `name: a
method: fedpha
backbones: [tiny-vit-b16, tiny-vit-b32]
options:
  rho: 0.8
  list:
    - 1
    - {x: 2}
train:
  rounds: 5
`

const configB = `name: b
method: fedpha
backbones:
  - tiny-vit-b16
  - tiny-vit-b32
options:
  rho: 0.5
  list:
    - 1
    - {x: 3}
train:
  rounds: 5
  lr: 0.1
`

func TestDifferences(t *testing.T) {
	keys, values := differences([]Run{{Config: configA}, {Config: configB}})
	// The names differ, but a name is no setting; the backbones are the same list written in two ways.
	if d := cmp.Diff([]string{"options.rho", "options.list", "train.lr"}, keys); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([][]string{{"0.8", "[1, {x: 2}]", ""}, {"0.5", "[1, {x: 3}]", "0.1"}}, values); d != "" {
		t.Error(d)
	}
	if table := differenceTable([]Run{{Config: configA}, {Config: configA}}); len(table.Columns) != 0 {
		t.Errorf("equal configurations differ in %v", table.Columns)
	}
}

func TestMarkedLines(t *testing.T) {
	views := configViews([]Run{{Name: "a", Config: configA}, {Name: "b", Config: configB},
		{Name: "c", Config: "}: no YAML"}})
	var marked []string
	for _, l := range views[1].Lines {
		if l.Marked {
			marked = append(marked, l.Indent+l.Text)
		}
	}
	// Against a text that is no YAML every setting differs: all of b's 13 lines but name, options and train.
	if len(marked) != 10 || len(views) != 3 {
		t.Errorf("%d lines are marked: %q", len(marked), marked)
	}
	marked = nil
	for _, l := range configViews([]Run{{Config: configA}, {Config: configB}})[1].Lines {
		if l.Marked {
			marked = append(marked, l.Indent+l.Text)
		}
	}
	if d := cmp.Diff([]string{"  rho: 0.5", "  list:", "    - 1", "    - {x: 3}", "  lr: 0.1"}, marked); d != "" {
		t.Error(d)
	}
}
