package metrics

import (
	"cmp"
	"slices"
	"testing"
)

// Every metric has all fields that tables, checks and the glossary read, and accuracy is the first column.
func TestDefinitions(t *testing.T) {
	all, names, keys := Definitions(), map[string]bool{}, map[string]bool{perClientKey: true, perDomainKey: true}
	for _, d := range all {
		if d.Title == "" || d.Merge == "" || d.Exists == "" || d.Privacy == "" || d.Read == nil || !(d.Low < d.High) {
			t.Errorf("%s is not complete: %+v", d.Name, d)
		}
		if names[d.Name] || d.Key != "" && keys[d.Key] {
			t.Errorf("%s or its key %s is there twice", d.Name, d.Key)
		}
		names[d.Name], keys[d.Key] = true, true
		if _, err := ParseName(d.Name + map[bool]string{true: ":5"}[d.Argument != ""]); err != nil {
			t.Error(err)
		}
	}
	if all[0].Name != Accuracy || !slices.IsSortedFunc(all, func(a, b Definition) int {
		return cmp.Compare(a.Column, b.Column)
	}) {
		t.Errorf("the columns begin with %s, or are in another order", all[0].Name)
	}
}

// An empty round has no metric of an evaluation, and no reader panics.
func TestEmptyRound(t *testing.T) {
	for _, d := range Definitions() {
		if v, ok := d.Read(Round{}, "1"); ok && d.Evaluated {
			t.Errorf("an empty round has %s %v", d.Name, v)
		}
		if d.Arguments != nil && len(d.Arguments(Round{})) > 0 {
			t.Errorf("an empty round has arguments of %s", d.Name)
		}
	}
}
