package configtags

import (
	"reflect"
	"testing"
)

// Another release's value for what every run does now is allowed, and others name what to use.
func TestRemoved(t *testing.T) {
	r := Removed{Was: "4", Instead: "use width"}
	if err := r.Check("depth", 4); err != nil {
		t.Error(err)
	}
	if err := r.Check("depth", 5); err == nil || err.Error() != "depth was removed: use width" {
		t.Error(err)
	}
}

func TestFlatten(t *testing.T) {
	want := map[string]any{"name": "x", "depth": 3, "own.depth": 4}
	if got := Flatten(&outer{Name: "x", inner: inner{Depth: 3}, Own: inner{Depth: 4},
		Other: 5}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
