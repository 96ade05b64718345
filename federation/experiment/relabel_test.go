package experiment

import (
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
)

// Of two lists of classes an error names the difference.
func TestRelabel(t *testing.T) {
	all := []string{"bird", "cat", "dog", "fish"}
	err := relabel(&data.Set{Classes: []string{"bird", "cat", "dgo"}}, all)
	datatest.WantError(t, err, `the experiment has no class "dgo"`, "without a folder here are: dog, fish;",
		"data.class_names")
	err = relabel(&data.Set{Classes: append([]string{"x"}, all...)}, all)
	datatest.WantError(t, err, `no class "x"`, "here are: none;")
	s := &data.Set{Classes: []string{"dog", "bird"}, Train: []data.Example{{Label: 0}, {Label: 1}}}
	if err := relabel(s, all); err != nil || s.Train[0].Label != 2 || s.Train[1].Label != 0 {
		t.Errorf("%v, labels %v", err, s.Train)
	}
}
