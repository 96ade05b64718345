package experiment

import (
	"slices"
	"testing"

	"promptfed/federation/engine/spec"
)

// TestEach: lists of different lengths repeat independently.
func TestEach(t *testing.T) {
	e := Overrides{Epochs: []int{2, 1, 1}, Batch: []int{32, 16}}
	want := []spec.Overrides{{Epochs: 2, Batch: 32}, {Epochs: 1, Batch: 16}, {Epochs: 1, Batch: 32},
		{Epochs: 2, Batch: 16}}
	if got := e.perClient(4); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if (Overrides{}).perClient(4) != nil {
		t.Error("empty lists change something")
	}
	c := smallConfig("promptfl")
	c.Train.Each.Batch = []int{8, 0}
	refuses(t, c, "train.each.batch", "1 or more")
}
