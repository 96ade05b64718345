package source

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// counts returns the images and the test images of each cell and of each class.
func counts(cells []Cell, splits []string) (all, test map[Cell]int, classes, tested map[int]int) {
	all, test, classes, tested = map[Cell]int{}, map[Cell]int{}, map[int]int{}, map[int]int{}
	for i, c := range cells {
		all[c]++
		classes[c.Label]++
		if splits[i] == "test" {
			test[c]++
			tested[c.Label]++
		}
	}
	return all, test, classes, tested
}

// TestHoldOut checks the rule for random numbers of images of random classes in random domains: the test share of a
// cell is 20 %, rounded to whole images and at least one of two; every class of two images has training and test
// images, and a class of one a training image; other cells, or another order of the cells, change nothing in a cell.
func TestHoldOut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var cells []Cell
		for domain := range 1 + r.IntN(3) {
			for label := range 1 + r.IntN(8) {
				for range r.IntN([]int{2, 4, 13, 45}[r.IntN(4)]) {
					cells = append(cells, Cell{label, domain})
				}
			}
		}
		splits := HoldOut(cells)
		all, test, classes, tested := counts(cells, splits)
		for c, n := range all {
			want := (2*n + 5) / 10 // 0.2 n, rounded
			if n > 1 && test[c] != max(1, want) {
				t.Fatalf("%d of %d images of %v are tested", test[c], n, c)
			}
		}
		for label, n := range classes {
			if n > 1 && (tested[label] == 0 || tested[label] == n) || n == 1 && tested[label] > 0 {
				t.Fatalf("%d of %d images of class %d are tested: %v", tested[label], n, label, all)
			}
		}
		perm := r.Perm(8) // other numbers for the classes
		other := slices.Clone(cells)
		for i := range other {
			other[i].Label = perm[other[i].Label]
		}
		if !slices.Equal(HoldOut(other), splits) {
			t.Fatal("the numbers of classes change the split")
		}
		only, at := cells[:0:0], []int(nil) // one class without the others
		for i, c := range cells {
			if c.Label == 0 {
				only, at = append(only, c), append(at, i)
			}
		}
		for k, split := range HoldOut(only) {
			if split != splits[at[k]] {
				t.Fatal("other classes change the split of a class")
			}
		}
	}
}

// TestHoldOutOfTens: if every class has a multiple of ten images in a domain, the split is two of every ten over the
// sorted domain. The bundled backbones were trained on training images of this split.
func TestHoldOutOfTens(t *testing.T) {
	var cells []Cell
	for label, n := range []int{10, 40, 60, 2000} {
		cells = append(cells, slices.Repeat([]Cell{{Label: label}}, n)...)
	}
	if !slices.Equal(HoldOut(cells), HoldOutInDomain(len(cells))) {
		t.Error("the two rules differ")
	}
}

// TestHoldOutOffice31: Office-31 has 2,817, 498 and 795 images in its domains; FedPHA's code reports 3,292 training and
// 818 test images, which the rule must reproduce.
func TestHoldOutOffice31(t *testing.T) {
	counts := map[string]int{}
	for _, n := range []int{2817, 498, 795} {
		for _, split := range HoldOutInDomain(n) {
			counts[split]++
		}
	}
	if counts["train"] != 3292 || counts["test"] != 818 {
		t.Errorf("%v, want 3292 and 818", counts)
	}
}
