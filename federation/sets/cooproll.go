package sets

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"promptfed/federation/data"
)

// roll is what lists say about images, before any image file is looked at.
type roll struct {
	list    string // the file that lists, for messages
	root    string // the set's folder: names of examples are relative to it
	images  string // the folder that paths are relative to
	names   map[int]string
	domains []string
	items   []item
	layout  string // for people
	notes   []string
	skipped []data.Skipped
	// repeats allows one name for several classes, as ImageNet's list has them.
	repeats bool
}

// item is one image of a list.
type item struct {
	path   string // with forward slashes
	label  int    // of names, any number
	domain int
	split  string // train, val, test, or what draw takes
	known  *data.Example
}

// maxLabel bounds labels, so that a damaged list is told from a set.
const maxLabel = 1 << 20

// add notes one image. where, such as `line 3`, begins the error of a bad one.
func (l *roll) add(where string, it item) error {
	if it.path == "" || !filepath.IsLocal(filepath.FromSlash(it.path)) {
		return fmt.Errorf("%s: path %q is absolute or leaves the folder: expected one relative to the images", where,
			it.path)
	}
	if it.label < 0 || it.label > maxLabel {
		return fmt.Errorf("%s: label %d is out of range: expected 0 to %d", where, it.label, maxLabel)
	}
	if _, ok := l.names[it.label]; !ok {
		return fmt.Errorf("%s: label %d has no class name", where, it.label)
	}
	l.items = append(l.items, it)
	return nil
}

// name gives a class its name; underscores become spaces. Another name for the same class is an error.
func (l *roll) name(where string, label int, name string) error {
	name = strings.ReplaceAll(name, "_", " ")
	if strings.TrimSpace(name) == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%s: %q is no class name: expected text", where, name)
	}
	if l.names == nil {
		l.names = map[int]string{}
	}
	if had, ok := l.names[label]; ok && had != name {
		return fmt.Errorf("%s: label %d is %q here and %q before: expected one name per label", where, label, name, had)
	}
	l.names[label] = name
	return nil
}

// draw splits the images whose split is from, class by class: train and val get these shares of a class, rounded half
// to even as Python does, and test the rest. The draw depends on the class's name and number of images alone. A class
// of two and more has an image in test, if there is to be one, and every class has one in train.
func (l *roll) draw(from string, train, val float64) {
	slices.SortStableFunc(l.items, func(a, b item) int {
		return cmp.Or(a.label-b.label, strings.Compare(a.path,
			b.path))
	})
	for i := 0; i < len(l.items); {
		var class []int
		label := l.items[i].label
		for ; i < len(l.items) && l.items[i].label == label; i++ {
			if l.items[i].split == from {
				class = append(class, i)
			}
		}
		n := len(class)
		if n == 0 {
			continue
		}
		a, b := int(math.RoundToEven(float64(n)*train)), int(math.RoundToEven(float64(n)*val))
		a = max(1, a)
		b = min(b, n-a)
		if train+val < 1 && a+b == n && n > 1 { // leave one for test
			if b > 0 {
				b--
			} else {
				a--
			}
		} else if train+val >= 1 {
			b = n - a
		}
		for at, j := range data.Stream(0, "split of "+l.names[label], n).Perm(n) {
			split := "test"
			if at < a {
				split = "train"
			} else if at < a+b {
				split = "val"
			}
			l.items[class[j]].split = split
		}
	}
}

// drawThree is CoOp's split of a set that has none: 50 % train, 20 % val, 30 % test of every class.
func (l *roll) drawThree() {
	l.draw("", 0.5, 0.2)
	l.notes = append(l.notes, "no split file: 50/20/30 of every class by promptfed's own draw, not comparable with "+
		"split_zhou")
}

// drawVal takes CoOp's 20 % of every class for val from a release's training list.
func (l *roll) drawVal() {
	l.draw("trainval", 0.8, 0.2)
	l.notes = append(l.notes, "no split file: the release's own test list; val is 20 % of every class of its "+
		"training list by promptfed's own draw")
}

// official notes that a release's own split is not CoOp's.
func (l *roll) official(what string) {
	l.notes = append(l.notes, "no split file: the release's own split ("+what+"), not comparable with split_zhou")
}

// set looks at every image file and makes the set; labels keep their order.
func (l *roll) set(cfg Config) (*data.Set, error) {
	s := &data.Set{Layout: l.layout, Domains: l.domains, Skipped: l.skipped, Notes: l.notes}
	if len(l.items) == 0 {
		return nil, fmt.Errorf("%s lists no images", l.list)
	}
	seen := make(map[string]bool, len(l.items))
	label, err := l.classes(s)
	if err != nil {
		return nil, err
	}
	missing := 0
	for _, it := range l.items {
		if seen[it.path] {
			return nil, fmt.Errorf("%s lists %s twice: expected every image once", l.list, it.path)
		}
		seen[it.path] = true
		e, reason, err := l.look(it)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			missing++
			s.Skipped = append(s.Skipped, data.Skipped{Name: e.Path, Reason: reason})
			continue
		}
		e.Label, e.Domain = label[it.label], it.domain
		switch it.split {
		case "train":
			s.Train = append(s.Train, e)
		case "val":
			s.Val = append(s.Val, e)
		default:
			s.Test = append(s.Test, e)
		}
	}
	if missing > 0 && cfg.Corrupt != data.Skip {
		first := s.Skipped[len(s.Skipped)-missing]
		return nil, fmt.Errorf("%d of the %d images that %s lists cannot be used; the first, %s, %s: complete the "+
			"images, or set data.corrupt: skip",
			missing, len(l.items), l.list, first.Name, first.Reason)
	}
	for c, n := range s.Counts(s.Train) {
		if n == 0 {
			return nil, fmt.Errorf("%s: class %q has no training images", l.list, s.Classes[c])
		}
	}
	if len(s.Test) == 0 {
		return nil, fmt.Errorf("%s lists no test images", l.list)
	}
	return s, nil
}

// classes numbers the labels that occur from 0, in their order.
func (l *roll) classes(s *data.Set) (map[int]int, error) {
	var labels []int
	to := map[int]int{}
	for _, it := range l.items {
		if _, ok := to[it.label]; !ok {
			to[it.label] = 0
			labels = append(labels, it.label)
		}
	}
	slices.Sort(labels)
	owner := map[string]int{}
	for i, n := range labels {
		name := l.names[n]
		if other, ok := owner[name]; ok {
			if !l.repeats {
				return nil, fmt.Errorf("%s: labels %d and %d are both %q: expected one label per name", l.list, other,
					n, name)
			}
			name = fmt.Sprintf("%s %d", name, n)
			s.Notes = append(s.Notes, fmt.Sprintf("labels %d and %d are both %q: the second is called %q", other, n,
				l.names[n], name))
		}
		owner[name] = n
		to[n] = i
		s.Classes = append(s.Classes, name)
	}
	if last := labels[len(labels)-1]; last != len(labels)-1 {
		s.Notes = append(s.Notes, fmt.Sprintf("labels run to %d but only %d of them have images: renumbered in "+
			"order", last, len(labels)))
	}
	return to, nil
}

// look gives the example of an item, or the reason why it has none.
func (l *roll) look(it item) (data.Example, string, error) {
	if it.known != nil {
		return *it.known, "", nil
	}
	path := filepath.Join(l.images, filepath.FromSlash(it.path))
	e := data.Example{Path: path}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, "is missing", nil
	case err != nil:
		return e, "", err
	case st.IsDir():
		return e, "is a folder", nil
	case st.Size() == 0:
		return e, "is empty", nil
	}
	id, err := filepath.Rel(l.root, path)
	if err != nil {
		return e, "", err
	}
	e.ID = filepath.ToSlash(id)
	e.Stamp = fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
	return e, "", nil
}
