package experiment

import (
	"slices"
	"testing"

	"promptfed/federation/engine/spec"
)

// TestEach: lists of different lengths repeat independently.
func TestEach(t *testing.T) {
	e := Overrides{Epochs: []int{2, 1, 1}, Batch: []int{32, 16}, Steps: []int{5, 6, 7, 8, 9}}
	want := []spec.Overrides{{Epochs: 2, Batch: 32, Steps: 5}, {Epochs: 1, Batch: 16, Steps: 6},
		{Epochs: 1, Batch: 32, Steps: 7}, {Epochs: 2, Batch: 16, Steps: 8}}
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
