package source

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"promptfed/federation/data"
	"promptfed/runtime/convert"
)

// Listing is a list of images, before any image file is examined.
type Listing struct {
	List    string // the list file, for messages
	Root    string // the set's folder, to which names of examples are relative
	Images  string // the folder to which paths are relative
	Names   map[int]string
	Domains []string
	Items   []Item
	Layout  string // description for messages
	Notes   []string
	Skipped []data.Skipped
	// RepeatedNames allows several classes with the same name, as in ImageNet's list.
	RepeatedNames bool
	// TestOnly marks a set without training images.
	TestOnly bool
}

// Item is one image of a list.
type Item struct {
	Path    string // with forward slashes
	Label   int    // key of Names, any number
	Domain  int
	Split   string // train, val, test, or the argument from of draw
	Example *data.Example
}

// MaxLabel limits labels, so that a damaged list is refused.
const MaxLabel = 1 << 20

// Add adds one image. where, such as `line 3`, is the place in errors.
func (l *Listing) Add(where string, it Item) error {
	if it.Path == "" || !filepath.IsLocal(filepath.FromSlash(it.Path)) {
		return fmt.Errorf("%s: path %q is absolute or leaves the folder: expected one relative to the images", where,
			it.Path)
	}

	it.Path = path.Clean(it.Path) // two spellings of a path are one image
	if it.Label < 0 || it.Label > MaxLabel {
		return fmt.Errorf("%s: label %d is out of range: expected 0 to %d", where, it.Label, MaxLabel)
	}

	if _, ok := l.Names[it.Label]; !ok {
		return fmt.Errorf("%s: label %d has no class name", where, it.Label)
	}

	l.Items = append(l.Items, it)
	return nil
}

// AddNamed adds one image and sets the name of its class.
func (l *Listing) AddNamed(where, name string, it Item) error {
	if err := l.Name(where, it.Label, name); err != nil {
		return err
	}
	return l.Add(where, it)
}

// Name sets the name of a class, with underscores replaced by spaces. A second, different name of a class is an error.
func (l *Listing) Name(where string, label int, name string) error {
	name = strings.ReplaceAll(name, "_", " ")
	if !isName(name) {
		return fmt.Errorf("%s: %q is not a class name: expected text", where, name)
	}

	if l.Names == nil {
		l.Names = map[int]string{}
	}

	if had, ok := l.Names[label]; ok && had != name {
		return fmt.Errorf("%s: label %d is %q here and %q before: expected one name per label", where, label, name, had)
	}

	l.Names[label] = name
	return nil
}

// isName reports whether a class may have a name.
func isName(name string) bool {
	return strings.TrimSpace(name) != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// draw splits the images whose split is from, class by class: train and val get these shares of a class, rounded half
// to even as in Python, and test gets the rest. The draw depends only on the class's name and number of images. A class
// of two or more images has an image in test, if test gets a share, and every class has one in train.
func (l *Listing) draw(from string, train, val float64) {
	slices.SortStableFunc(l.Items, func(a, b Item) int {
		return cmp.Or(a.Label-b.Label, strings.Compare(a.Path, b.Path))
	})
	for i := 0; i < len(l.Items); {
		var class []int
		label := l.Items[i].Label
		for ; i < len(l.Items) && l.Items[i].Label == label; i++ {
			if l.Items[i].Split == from {
				class = append(class, i)
			}
		}

		n := len(class)
		if n == 0 {
			continue
		}

		trainCount, valCount := int(math.RoundToEven(float64(n)*train)), int(math.RoundToEven(float64(n)*val))
		trainCount = max(1, trainCount)
		valCount = min(valCount, n-trainCount)
		if train+val < 1 && trainCount+valCount == n && n > 1 { // leave one for test
			if valCount > 0 {
				valCount--
			} else {
				trainCount--
			}
		} else if train+val >= 1 {
			valCount = n - trainCount
		}

		for at, j := range data.NewRand(0, "split of "+l.Names[label], n).Perm(n) {
			split := "test"
			if at < trainCount {
				split = "train"
			} else if at < trainCount+valCount {
				split = "val"
			}
			l.Items[class[j]].Split = split
		}
	}
}

// DrawSplit draws CoOp's shares for a set without splits: 50 % train, 20 % val, 30 % test of every class.
func (l *Listing) DrawSplit() {
	l.draw("", 0.5, 0.2)
	l.Notes = append(l.Notes, "no split file: 50/20/30 of every class by promptfed's own draw, not comparable with "+
		"split_zhou")
}

// DrawVal draws CoOp's 20 % of every class of a release's training list as val.
func (l *Listing) DrawVal() {
	l.draw("trainval", 0.8, 0.2)
	l.Notes = append(l.Notes, "no split file: the release's own test list; val is 20 % of every class of its "+
		"training list by promptfed's own draw")
}

// OfficialSplit adds the note that the release's own split is not CoOp's, unless l is nil.
func (l *Listing) OfficialSplit(what string) *Listing {
	if l != nil {
		l.Notes = append(l.Notes, "no split file: the release's own split ("+what+"), not comparable with split_zhou")
	}
	return l
}

// Set checks every image file and makes the set; labels keep their order.
func (l *Listing) Set(cfg Config) (*data.Set, error) {
	set := &data.Set{Layout: l.Layout, Domains: l.Domains, Skipped: l.Skipped, Notes: l.Notes}
	if len(l.Items) == 0 {
		return nil, fmt.Errorf("%s lists no images", l.List)
	}

	seen := make(map[string]bool, len(l.Items))
	label, err := l.classes(set)
	if err != nil {
		return nil, err
	}

	missing := 0
	for _, it := range l.Items {
		if seen[it.Path] {
			return nil, fmt.Errorf("%s lists %s twice: expected every image once", l.List, it.Path)
		}

		seen[it.Path] = true
		example, reason, err := l.example(it)
		if err != nil {
			return nil, err
		}

		if reason != "" {
			missing++
			set.Skipped = append(set.Skipped, data.Skipped{Name: example.Path, Reason: reason})
			continue
		}

		example.Label, example.Domain = label[it.Label], it.Domain
		set.Add(it.Split, example)
	}

	if missing > 0 && cfg.Corrupt != data.Skip {
		first := set.Skipped[len(set.Skipped)-missing]
		return nil, fmt.Errorf("%d of the %d images that %s lists cannot be used; the first, %s, %s: complete the "+
			"images, or set data.corrupt: skip", missing, len(l.Items), l.List, first.Name, first.Reason)
	}

	for c, n := range set.Counts(set.Train) {
		if n == 0 && !l.TestOnly {
			return nil, fmt.Errorf("%s: class %q has no training images", l.List, set.Classes[c])
		}
	}

	if len(set.Test) == 0 {
		return nil, fmt.Errorf("%s lists no test images", l.List)
	}

	return set, nil
}

// classes numbers the labels that occur from 0, in their order.
func (l *Listing) classes(set *data.Set) (map[int]int, error) {
	to := map[int]int{}
	for _, it := range l.Items {
		to[it.Label] = 0
	}

	labels := slices.Sorted(maps.Keys(to))
	owner := map[string]int{}
	for i, label := range labels {
		name := l.Names[label]
		if other, ok := owner[name]; ok {
			if !l.RepeatedNames {
				return nil, fmt.Errorf("%s: labels %d and %d are both %q: expected one label per name", l.List, other,
					label, name)
			}
			name = fmt.Sprintf("%s %d", name, label)
			set.Notes = append(set.Notes, fmt.Sprintf("labels %d and %d are both %q: the second becomes %q", other,
				label, l.Names[label], name))
		}
		owner[name] = label
		to[label] = i
		set.Classes = append(set.Classes, name)
	}

	if last := labels[len(labels)-1]; last != len(labels)-1 {
		set.Notes = append(set.Notes, fmt.Sprintf("labels run to %d but only %d of them have images: renumbered in "+
			"order",
			last, len(labels)))
	}

	return to, nil
}

// example returns the example of an item, or the reason why its file cannot be used.
func (l *Listing) example(it Item) (data.Example, string, error) {
	if it.Example != nil {
		return *it.Example, "", nil
	}

	path := filepath.Join(l.Images, filepath.FromSlash(it.Path))
	example := data.Example{Path: path}
	st, err := os.Stat(path)
	switch {
	case leadsNowhere(err):
		return example, "is missing", nil
	case err != nil:
		return example, "", err
	case st.IsDir():
		return example, "is a folder", nil
	case st.Size() == 0:
		return example, "is empty", nil
	}

	example, err = FileExample(l.Root, path, st)
	return example, "", err
}

// HoldOut sorts the images by domain, class and path, and splits them with the function HoldOut.
func (l *Listing) HoldOut() {
	slices.SortStableFunc(l.Items, func(a, b Item) int {
		return cmp.Or(a.Domain-b.Domain, a.Label-b.Label, compare(a.Path, b.Path))
	})
	cells := convert.Slice(l.Items, func(it Item) Cell { return Cell{it.Label, it.Domain} })
	for i, split := range HoldOut(cells) {
		l.Items[i].Split = split
	}
}

// ValAsTest uses val as test in a list without test images.
func (l *Listing) ValAsTest() {
	has := func(split string) bool {
		return slices.ContainsFunc(l.Items, func(it Item) bool { return it.Split == split })
	}
	if has("test") || !has("val") {
		return
	}

	for i := range l.Items {
		if l.Items[i].Split == "val" {
			l.Items[i].Split = "test"
		}
	}

	l.Notes = append(l.Notes, "no test split: val serves as test")
}

// Cell is a class in a domain, as numbers of a set.
type Cell struct{ Label, Domain int }

// HoldOut returns the split, train or test, of every image of a set without splits; cells holds the cells of the
// images, in order. Two of every ten images of a cell are test images: the last two of each full ten, and the last
// round(r/5) of the r remaining images; in a cell of two to nine images, at least one. So a cell of two or more images
// has both splits, and the split of a cell depends on no other cell. Images that are alone in their cell form one group
// for each class, in the order of their domains, which is split in the same way. A class of a single image has only a
// training image.
func HoldOut(cells []Cell) []string {
	groups, alone := map[Cell][]int{}, map[int][]int{} // positions in cells
	for i, c := range cells {
		groups[c] = append(groups[c], i)
	}

	out := make([]string, len(cells))
	split := func(group []int) {
		for i, at := range group {
			out[at] = "train"
			if heldOut(i, len(group)) {
				out[at] = "test"
			}
		}
	}

	for i, c := range cells {
		if len(groups[c]) == 1 {
			alone[c.Label] = append(alone[c.Label], i)
		}
	}

	for _, group := range groups {
		if len(group) > 1 {
			split(group)
		}
	}

	for _, group := range alone {
		split(group)
	}

	return out
}

// heldOut reports whether image i of a group of n is a test image.
func heldOut(i, n int) bool {
	rest := n % 10
	if i < n-rest {
		return i%10 >= 8
	}

	tested := (rest + 2) / 5 // round(rest/5)
	if n > 1 && n < 10 {
		tested = max(1, tested)
	}

	return i >= n-tested
}

// HoldOutInDomain returns the split of the office sets in FedPHA's public code (utils/data_utils.py): image i of a
// domain of n, in the order of classes and files, is a training image if i mod 10 is at most 7. Office-31 gets 3,292
// training and 818 test images. A class may have no test image in a domain.
func HoldOutInDomain(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "train"
		if i%10 > 7 {
			out[i] = "test"
		}
	}

	return out
}
