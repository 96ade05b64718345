package configtags

import (
	"reflect"
	"testing"
)

func TestFlatten(t *testing.T) {
	want := map[string]any{"name": "x", "depth": 3, "own.depth": 4}
	if got := Flatten(&outer{Name: "x", inner: inner{Depth: 3}, Own: inner{Depth: 4},
		Other: 5}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
