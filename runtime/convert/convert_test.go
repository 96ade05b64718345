package convert

import (
	"slices"
	"strconv"
	"testing"
)

// The results have the order of the elements, and there is one of each.
func TestSlice(t *testing.T) {
	if got := Slice([]int{3, 1, 3}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "3"}) {
		t.Error(got)
	}
	if got := Slice(nil, strconv.Itoa); got == nil || len(got) != 0 {
		t.Error(got)
	}
}
