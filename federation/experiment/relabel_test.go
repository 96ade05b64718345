package experiment

import (
	"testing"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
)

// Of two lists of classes an error names the difference.
func TestRelabel(t *testing.T) {
	all := []string{"bird", "cat", "dog", "fish"}
	err := relabel(&data.Set{Classes: []string{"bird", "cat", "dgo", "elk", "emu"}}, append(all, "owl"))
	goldentest.WantError(t, err, `the experiment has no class "dgo", "elk", "emu"`,
		"a folder here are: dog, fish, owl;", `--set 'data.class_names={"dgo": "dog", "elk": "NAME", "emu": "NAME"}'`)
	err = relabel(&data.Set{Classes: []string{"bird", "cat", "dog", "herring"}}, all)
	goldentest.WantError(t, err, `data.class_names={"herring": "fish"}`)
	err = relabel(&data.Set{Classes: append([]string{"x"}, all...)}, all)
	goldentest.WantError(t, err, `no class "x"`, "out of data.root")
	s := &data.Set{Classes: []string{"dog", "bird"}, Train: []data.Example{{Label: 0}, {Label: 1}}}
	if err := relabel(s, all); err != nil || s.Train[0].Label != 2 || s.Train[1].Label != 0 {
		t.Errorf("%v, labels %v", err, s.Train)
	}
}
