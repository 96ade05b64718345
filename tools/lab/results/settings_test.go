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

func TestMarkedLines(t *testing.T) {
	marked := func(configs []string, of int) (out []string) {
		keys, _, _ := ConfigDifferences(configs)
		for _, l := range MarkedLines(configs[of], keys) {
			if marked, ok := l.([]string); ok {
				out = append(out, marked[0])
			}
		}
		return out
	}
	// Against a text that is not YAML every setting differs: all 13 lines of b except name, options and train.
	if m := marked([]string{configA, configB, "}: no YAML"}, 1); len(m) != 10 {
		t.Errorf("%d lines are marked: %q", len(m), m)
	}
	if d := cmp.Diff([]string{"  rho: 0.5", "  list:", "    - 1", "    - {x: 3}", "  lr: 0.1"},
		marked([]string{configA, configB}, 1)); d != "" {
		t.Error(d)
	}
}
