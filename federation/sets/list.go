package sets

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data"
)

const listExpects = "a .csv, .tsv, .json or .jsonl file, or a folder with list.csv and so on: columns path, label, " +
	"and if wanted class, domain, split"

// listNames are the files that data.root may hold where it is a folder.
var listNames = []string{"list.csv", "list.tsv", "list.json", "list.jsonl", "metadata.csv", "metadata.jsonl"}

// listColumns maps names of columns, in lower case, to what they hold.
var listColumns = map[string]string{"path": "path", "file": "path", "filename": "path", "file_name": "path",
	"filepath":  "path",
	"file_path": "path", "image": "path", "image_path": "path", "label": "label", "labels": "label", "target": "label",
	"class": "class", "class_name": "class", "classname": "class", "domain": "domain", "split": "split",
	"partition": "split"}

// entry is one line of a list.
type entry struct{ path, label, class, domain, split string }

func (e *entry) set(column, value string) {
	switch column {
	case "path":
		e.path = value
	case "label":
		e.label = value
	case "class":
		e.class = value
	case "domain":
		e.domain = value
	case "split":
		e.split = value
	}
}

// openListed reads a list of images. Labels are names, or whole numbers whose names stand in class where that is there;
// names are sorted without regard to case, numbers by size. Without a split column the rule of folders makes the
// splits.
func openListed(cfg Config) (*data.Set, error) {
	file, err := listFile(cfg.Root)
	if err != nil {
		return nil, err
	}
	r, done, err := openList(file)
	if err != nil {
		return nil, err
	}
	defer done()
	read := readJSONList
	switch strings.ToLower(filepath.Ext(file)) {
	case ".csv", ".txt":
		read = readCSVList(0)
	case ".tsv":
		read = readCSVList('\t')
	}
	l := &listing{}
	if err := read(r, l.add); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	roll, err := l.roll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	roll.layout = "the list " + filepath.Base(file)
	roll.list, roll.root, roll.images = file, filepath.Dir(file), filepath.Dir(file)
	return roll.set(cfg)
}

// listFile is the list that data.root is or holds.
func listFile(root string) (string, error) {
	st, err := os.Stat(root)
	if err == nil && !st.IsDir() {
		return root, nil
	}
	list, err := entries(root)
	if err != nil {
		return "", err
	}
	var found, tried []string
	for _, e := range list {
		if slices.Contains(listNames, strings.ToLower(e.Name())) && !e.IsDir() {
			found = append(found, filepath.Join(root, e.Name()))
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return "", fmt.Errorf("%s are both lists: name one of them in data.root", strings.Join(found, " and "))
	}
	for _, n := range listNames {
		tried = append(tried, filepath.Join(root, n))
	}
	return "", fmt.Errorf("no list in %s: looked for %s: give data.root the file, or the folder that holds it", root,
		strings.Join(tried, ", "))
}

// listing collects the entries of a list and checks each.
type listing struct {
	entries []entry
	lines   []int
	first   map[string]int // class names in lower case: the line that each was first seen in
	spelt   map[string]string
}

func (l *listing) add(line int, e entry) error {
	if e.path == "" {
		return fmt.Errorf("line %d has no path", line)
	}
	if e.label == "" {
		e.label, e.class = e.class, ""
	}
	if e.label == "" {
		return fmt.Errorf("line %d has no label", line)
	}
	if e.split != "" {
		split := splitName(e.split)
		if split == "" {
			return fmt.Errorf("line %d: split %q is not known: take train, val or test", line, e.split)
		}
		e.split = split
	}
	if len(l.entries) > 0 {
		if had := l.entries[0]; (had.split == "") != (e.split == "") || (had.domain == "") != (e.domain == "") {
			return fmt.Errorf("line %d: expected domain and split in every line or in none", line)
		}
	}
	e.label = strings.ReplaceAll(e.label, "_", " ")
	if l.first == nil {
		l.first, l.spelt = map[string]int{}, map[string]string{}
	}
	key := strings.ToLower(e.label)
	if had, ok := l.spelt[key]; ok && had != e.label {
		return fmt.Errorf("line %d: class %q is %q in line %d: expected one spelling", line, e.label, had, l.first[key])
	} else if !ok {
		l.spelt[key], l.first[key] = e.label, line
	}
	l.entries, l.lines = append(l.entries, e), append(l.lines, line)
	return nil
}

// roll gives classes and domains their numbers.
func (l *listing) roll() (*roll, error) {
	r := &roll{}
	labels, whole := map[string]int{}, true
	domains := map[string]bool{}
	for _, e := range l.entries {
		n, err := strconv.Atoi(e.label)
		whole = whole && err == nil
		labels[e.label] = n
		domains[e.domain] = true
	}
	if !whole {
		for i, name := range sortedKeys(labels) {
			labels[name] = i
		}
	}
	if len(domains) > 1 || !domains[""] {
		r.domains = sortedKeys(domains)
	}
	at := map[string]int{}
	for i, d := range r.domains {
		at[d] = i
	}
	for i, e := range l.entries {
		where := fmt.Sprintf("line %d", l.lines[i])
		name := e.class
		if name == "" {
			name = e.label
		} else if !whole {
			return nil, fmt.Errorf("%s: label %q and class %q are both names: expected numbers in label where there "+
				"is a class", where, e.label, e.class)
		}
		if err := r.name(where, labels[e.label], name); err != nil {
			return nil, err
		}
		if err := r.add(where, item{path: filepath.ToSlash(e.path), label: labels[e.label], domain: at[e.domain],
			split: e.split}); err != nil {
			return nil, err
		}
	}
	if len(l.entries) > 0 && l.entries[0].split == "" {
		r.holdOut()
		r.notes = append(r.notes, "the list has no splits: two of every ten images are held out for testing")
	} else {
		r.tests()
	}
	return r, nil
}

// holdOut splits every domain, sorted by class and file, by the rule of folders.
func (l *roll) holdOut() {
	slices.SortStableFunc(l.items, func(a, b item) int {
		if a.domain != b.domain {
			return a.domain - b.domain
		}
		if a.label != b.label {
			return a.label - b.label
		}
		return compare(a.path, b.path)
	})
	for i, at := 0, 0; i < len(l.items); i, at = i+1, at+1 {
		if i > 0 && l.items[i].domain != l.items[i-1].domain {
			at = 0
		}
		l.items[i].split = heldOut(at)
	}
}

// tests takes val for test in a list that has no test images.
func (l *roll) tests() {
	has := func(split string) bool {
		return slices.ContainsFunc(l.items, func(it item) bool { return it.split == split })
	}
	if has("test") || !has("val") {
		return
	}
	for i := range l.items {
		if l.items[i].split == "val" {
			l.items[i].split = "test"
		}
	}
	l.notes = append(l.notes, "no test split: val serves as test")
}
