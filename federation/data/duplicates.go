package data

import (
	"cmp"
	"fmt"
	"strings"

	"promptfed/federation/configtags"
)

// The values of data.duplicates: what happens to images that occur in a set more than once.
const (
	DuplicatesError = "error" // refuse a set with an image in two splits, or twice in a pool
	// remove images from train that are also in val or test, and from val if they are in test; keep one copy in a pool
	DuplicatesDrop = "drop"
	DuplicatesKeep = "keep" // use the set unchanged
)

// Duplicates counts images that have the same bytes as another image of the set. A pool uses only Repeated, Labels and
// Dropped.
type Duplicates struct {
	TrainTest int `json:"train_in_test"` // images of train that are also in test
	TrainVal  int `json:"train_in_val"`
	ValTest   int `json:"val_in_test"`
	// additional copies of images that occur in train, or in the pool, more than once
	Repeated int    `json:"repeated"`
	Labels   int    `json:"labels"`            // different images that occur with several labels
	Dropped  int    `json:"dropped"`           // images that were left out
	Example  string `json:"example,omitempty"` // two places of one image, of the first kind above that occurs
}

// FindDuplicates counts the duplicates of the set and applies the policy. hashes are those of all splits, one split
// after the other in the order of Splits, and are set in the examples. A class that loses all its training images is an
// error.
func (s *Set) FindDuplicates(hashes []ContentHash, policy string) (Duplicates, error) {
	var duplicates Duplicates
	at, where, drop := map[string][]ContentHash{}, map[string]map[ContentHash]int{}, map[string][]bool{}
	label, several := map[ContentHash]int{}, map[ContentHash]bool{}
	examples := map[string][]Example{}
	for _, sp := range s.Splits() {
		n := len(*sp.Examples)
		at[sp.Name], hashes = hashes[:n:n], hashes[n:]
		examples[sp.Name], where[sp.Name], drop[sp.Name] = *sp.Examples, map[ContentHash]int{}, make([]bool, n)
		for i, hash := range at[sp.Name] {
			if hash == (ContentHash{}) {
				continue
			}
			if _, ok := where[sp.Name][hash]; !ok {
				where[sp.Name][hash] = i
			}
			y := examples[sp.Name][i].Label
			if first, ok := label[hash]; ok && first != y {
				several[hash] = true
			}
			label[hash] = y
		}
	}

	// count counts the images of a split that are in another one too, or that repeat an earlier one of the split.
	count := func(split, other string) (n int) {
		for i, c := range at[split] {
			j, ok := where[other][c]
			if !ok || split == other && i == j {
				continue
			}
			n++
			drop[split][i] = drop[split][i] || split != other || split == "pool"
			a, b := examples[split][i].ID, examples[other][j].ID
			if split == other {
				a, b = b, a
			}
			duplicates.Example = cmp.Or(duplicates.Example, a+" and "+b)
		}

		return n
	}

	duplicates.TrainTest, duplicates.TrainVal, duplicates.ValTest = count("train", "test"), count("train",
		"val"), count("val", "test")
	name := "train"
	if s.Pool != nil {
		name = "pool"
	}

	duplicates.Repeated = count(name, name)
	duplicates.Labels = len(several)
	if bad := duplicates.TrainTest + duplicates.TrainVal + duplicates.ValTest; policy == DuplicatesError &&
		(bad > 0 || name == "pool" && duplicates.Repeated > 0) {
		return duplicates, fmt.Errorf("%s, such as %s: remove them, or set data.duplicates: drop or keep",
			strings.Join(duplicates.Lines(name == "pool"), "; "), duplicates.Example)
	}

	for _, sp := range s.Splits() {
		before := *sp.Examples
		var kept []Example
		for i, e := range before {
			if policy == DuplicatesDrop && drop[sp.Name][i] {
				duplicates.Dropped++
				continue
			}
			e.ContentHash = at[sp.Name][i]
			kept = append(kept, e)
		}

		if sp.Name == name {
			if class, had := s.emptied(before, kept); had > 0 {
				return duplicates, configtags.KeyErrorf("data.duplicates", "drop leaves class %q without "+
					"training images: all %d are also in test or val", class, had)
			}
		}

		*sp.Examples = kept
	}

	return duplicates, nil
}

// Lines describes the duplicates in words, one line for each kind, for a set that is pooled or not.
func (d Duplicates) Lines(pooled bool) []string {
	repeats := [2]string{"training image repeats another one", "training images repeat others"}
	if pooled {
		repeats = [2]string{"image repeats another one of the pool", "images repeat others of the pool"}
	}

	var out []string
	for _, kind := range []struct {
		n     int
		words [2]string
	}{
		{d.TrainTest, [2]string{"training image is also a test image", "training images are also test images"}},
		{d.TrainVal, [2]string{"training image is also a validation image",
			"training images are also validation images"}},
		{d.ValTest, [2]string{"validation image is also a test image", "validation images are also test images"}},
		{d.Repeated, repeats},
		{d.Labels, [2]string{"image occurs with several labels", "images occur with several labels"}},
	} {
		if kind.n > 0 {
			out = append(out, fmt.Sprint(kind.n, " ", kind.words[min(kind.n, 2)-1]))
		}
	}

	return out
}
