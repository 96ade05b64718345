package data

import (
	"fmt"
	"slices"
	"strings"
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

// between returns the number of images that are in two splits.
func (d Duplicates) between() int { return d.TrainTest + d.TrainVal + d.ValTest }

// FindDuplicates counts the duplicates of the set and applies the policy. hashes are those of all splits, one split
// after the other in the order of Splits. The returned hashes, which are also set in the examples, are those of the
// remaining images. A class that loses all its training images is an error.
func (s *Set) FindDuplicates(hashes []ContentHash, policy string) (Duplicates, []ContentHash, error) {
	var d Duplicates
	at := map[string][]ContentHash{}
	where := map[string]map[ContentHash]int{}
	for _, sp := range s.Splits() {
		n := len(*sp.Examples)
		at[sp.Name], hashes = hashes[:n:n], hashes[n:]
		where[sp.Name] = map[ContentHash]int{}
		for i, c := range at[sp.Name] {
			if _, ok := where[sp.Name][c]; !ok && c != (ContentHash{}) {
				where[sp.Name][c] = i
			}
		}
	}
	example := func(a Example, b Example) {
		if d.Example == "" {
			d.Example = a.ID + " and " + b.ID
		}
	}
	drop := map[string][]bool{}
	in := func(split string, examples []Example, other string, others []Example) (n int) {
		for i, c := range at[split] {
			if j, ok := where[other][c]; ok && c != (ContentHash{}) {
				n++
				example(examples[i], others[j])
				drop[split][i] = true
			}
		}
		return n
	}
	for _, sp := range s.Splits() {
		drop[sp.Name] = make([]bool, len(*sp.Examples))
	}
	d.TrainTest, d.TrainVal, d.ValTest = in("train", s.Train, "test", s.Test), in("train", s.Train, "val", s.Val),
		in("val", s.Val, "test", s.Test)
	name, main := "train", s.Train
	if s.Pool != nil {
		name, main = "pool", s.Pool
	}
	for i, c := range at[name] {
		if j, ok := where[name][c]; ok && j < i {
			d.Repeated++
			example(main[j], main[i])
			drop[name][i] = drop[name][i] || name == "pool"
		}
	}
	label, several := map[ContentHash]int{}, map[ContentHash]bool{}
	for _, sp := range s.Splits() {
		for i, c := range at[sp.Name] {
			y := (*sp.Examples)[i].Label
			if first, ok := label[c]; ok && first != y && c != (ContentHash{}) {
				several[c] = true
			}
			label[c] = y
		}
	}
	d.Labels = len(several)
	if bad := d.between(); policy == DuplicatesError && (bad > 0 || name == "pool" && d.Repeated > 0) {
		return d, nil, fmt.Errorf("%s, such as %s: remove them, or set data.duplicates: drop or keep",
			strings.Join(d.Lines(name == "pool"), "; "), d.Example)
	}
	var left []ContentHash
	for _, sp := range s.Splits() {
		before := *sp.Examples
		var kept []Example
		for i, e := range before {
			if policy == DuplicatesDrop && drop[sp.Name][i] {
				d.Dropped++
				continue
			}
			e.ContentHash = at[sp.Name][i]
			kept, left = append(kept, e), append(left, e.ContentHash)
		}
		if sp.Name == name {
			had, has := s.Counts(before), s.Counts(kept)
			if k := slices.IndexFunc(has, func(n int) bool { return n == 0 }); k >= 0 && had[k] > 0 {
				return d, nil, fmt.Errorf("data.duplicates: drop leaves class %q without training images: all %d are "+
					"also in test or val", s.Classes[k], had[k])
			}
		}
		*sp.Examples = kept
	}
	return d, left, nil
}

// Lines describes the duplicates in words, one line for each kind, for a set that is pooled or not.
func (d Duplicates) Lines(pooled bool) []string {
	var out []string
	say := func(n int, one, many string) {
		if n == 1 {
			out = append(out, "1 "+one)
		} else if n > 1 {
			out = append(out, fmt.Sprint(n, " ", many))
		}
	}
	say(d.TrainTest, "training image is also a test image", "training images are also test images")
	say(d.TrainVal, "training image is also a validation image",
		"training images are also validation images")
	say(d.ValTest, "validation image is also a test image", "validation images are also test images")
	if pooled {
		say(d.Repeated, "image repeats another one of the pool", "images repeat others of the pool")
	} else {
		say(d.Repeated, "training image repeats another one", "training images repeat others")
	}
	say(d.Labels, "image occurs with several labels", "images occur with several labels")
	return out
}
