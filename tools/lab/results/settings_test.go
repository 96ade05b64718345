package results

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
	keys, values, same := ConfigDifferences([]string{configA, "", configB})
	// The names differ, but a name is not a setting. The backbones are equal lists in two notations. The second run has
	// no configuration.
	if d := cmp.Diff([]string{"options.rho", "options.list", "train.lr"}, keys); d != "" {
		t.Error(d)
	}
	text := func(s string) *string { return &s }
	want := [][]*string{{text("0.8"), text("[1, {x: 2}]"), nil}, {nil, nil, nil},
		{text("0.5"), text("[1, {x: 3}]"), text("0.1")}}
	if d := cmp.Diff(want, values); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([][2]string{{"method", "fedpha"}, {"backbones", "[tiny-vit-b16, tiny-vit-b32]"},
		{"train.rounds", "5"}}, same); d != "" {
		t.Error(d)
	}
	if keys, _, _ := ConfigDifferences([]string{configA, configA}); len(keys) != 0 {
		t.Errorf("equal configurations differ in %v", keys)
	}
}

// TestConfigLines: lines of lists belong to one setting, and lines above settings to none.
func TestConfigLines(t *testing.T) {
	want := [][]string{{"name: b", "name"}, {"method: fedpha", "method"}, {"backbones:", "backbones"},
		{"  - tiny-vit-b16", "backbones"}, {"  - tiny-vit-b32", "backbones"}, {"options:"},
		{"  rho: 0.5", "options.rho"},
		{"  list:", "options.list"}, {"    - 1", "options.list"}, {"    - {x: 3}", "options.list"}, {"train:"},
		{"  rounds: 5", "train.rounds"}, {"  lr: 0.1", "train.lr"}}
	if d := cmp.Diff(want, (&Run{Config: configB}).ConfigLines()); d != "" {
		t.Error(d)
	}
	want = [][]string{{"train: {lr: 1, rounds: 2}", "train.lr", "train.rounds"}}
	if d := cmp.Diff(want, (&Run{Config: want[0][0]}).ConfigLines()); d != "" {
		t.Error(d)
	}
}
