package experiment

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/partition"
)

// TestClassNotes: notes name the classes without images on a client, one line for each kind. Class a has a training and
// a test image, b a training image, c a test image, d none.
func TestClassNotes(t *testing.T) {
	b := &Data{Set: &data.Set{Classes: []string{"a", "b", "c", "d"}, Train: []data.Example{{Label: 0}, {Label: 1},
		{Label: 3}}, Test: []data.Example{{Label: 2}, {Label: 0}}},
		Parts: []partition.Client{{Train: []int{0}, Test: []int{1}}, {Train: []int{1}, Test: []int{0}}}}
	want := []string{"no client has images of 1 class: d", "no client has training images of 1 class: c",
		"no client has test images of 1 class: b"}
	if got := b.classNotes(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b.total = 3 // one client of three, whose images need not cover all classes
	if got := b.classNotes(); !slices.Equal(got, want[1:]) {
		t.Errorf("one client: %q", got)
	}
}

// TestClassOfOneImage: a class of one image is trained, and the notes name it. Other classes are tested.
func TestClassOfOneImage(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Set = "folder"
	c.Data.Root = datatest.Tree(t, "cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png", "emu/1.png")
	c.Partition = partition.Config{Kind: "iid", Clients: 1}
	got := info(t, c)
	if got.Splits[0].Images != 3 || got.Splits[1].Images != 2 {
		t.Errorf("%+v", got.Splits)
	}
	if !slices.ContainsFunc(got.Notes, func(n string) bool {
		return strings.Contains(n, "no client has test images of 1 class: emu")
	}) {
		t.Errorf("notes %q", got.Notes)
	}
}
