package list

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
)

// Kind reads any images that a file lists.
var Kind = source.Kind{Name: "list", About: "any images, named with their labels in a CSV or JSON file",
	Expects: listExpects, Source: "your own images", Open: openListed}

const listExpects = "a .csv, .tsv, .json or .jsonl file, or a folder with list.csv and so on: columns path, label, " +
	"and if wanted class, domain, split"

// listNames lists the files that are read if data.root is a folder.
var listNames = []string{"list.csv", "list.tsv", "list.json", "list.jsonl", "metadata.csv", "metadata.jsonl"}

// listColumns maps column names, in lower case, to fields of an entry.
var listColumns = map[string]string{"path": "path", "file": "path", "filename": "path", "file_name": "path",
	"filepath": "path", "file_path": "path", "image": "path", "image_path": "path", "label": "label", "labels": "label",
	"target": "label", "class": "class", "class_name": "class", "classname": "class", "domain": "domain",
	"split": "split", "partition": "split"}

// entry is one line of a list.
type entry struct {
	path, label, class, domain, split string
	where                             string // such as `line 3`
}

func (e *entry) set(column, value string) {
	if to := map[string]*string{"path": &e.path, "label": &e.label, "class": &e.class, "domain": &e.domain,
		"split": &e.split}[column]; to != nil {
		*to = value
	}
}

// openListed reads a list of images. Labels are names, or whole numbers; the names of numbers are in the column class,
// if it exists. Names are sorted case-insensitively, numbers by value. Without a column split, HoldOut makes the
// splits.
func openListed(cfg source.Config) (*data.Set, error) {
	file, err := listFile(cfg.Root)
	if err != nil {
		return nil, err
	}

	r, done, err := source.OpenList(file)
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

	images, err := l.images()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}

	images.Layout = "the list " + filepath.Base(file)
	images.List, images.Root, images.Images = file, filepath.Dir(file), filepath.Dir(file)
	return images.Set(cfg)
}

// listFile returns the list file: data.root itself, or a file in it.
func listFile(root string) (string, error) {
	st, err := os.Stat(root)
	if err == nil && !st.IsDir() {
		return root, nil
	}

	list, err := source.Entries(root)
	if err != nil {
		return "", err
	}

	var found []string
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

	tried := convert.Slice(listNames, func(name string) string { return filepath.Join(root, name) })
	return "", fmt.Errorf("no list in %s: looked for %s: set data.root to the file, or to the folder that holds it",
		root, strings.Join(tried, ", "))
}

// listing collects and checks the entries of a list.
type listing struct {
	entries []entry
	classes source.Spelling
	domains source.Spelling
}

func (l *listing) add(line int, entry entry) error {
	if entry.path == "" {
		return fmt.Errorf("line %d has no path", line)
	}

	if entry.label == "" {
		entry.label, entry.class = entry.class, ""
	}

	if entry.label == "" {
		return fmt.Errorf("line %d has no label", line)
	}

	if entry.split != "" {
		split := source.SplitName(entry.split)
		if split == "" {
			return fmt.Errorf("line %d: split %q is not known: use train, val or test", line, entry.split)
		}
		entry.split = split
	}

	if len(l.entries) > 0 {
		if had := l.entries[0]; (had.split == "") != (entry.split == "") || (had.domain == "") != (entry.domain == "") {
			return fmt.Errorf("line %d: expected domain and split in every line or in none", line)
		}
	}

	if l.classes == nil {
		l.classes, l.domains = source.Spelling{}, source.Spelling{}
	}

	entry.where = fmt.Sprintf("line %d", line)
	if err := cmp.Or(l.classes.Check("class", entry.where, entry.label), l.domains.Check("domain", entry.where,
		entry.domain)); err != nil {
		return err
	}

	entry.label = strings.ReplaceAll(entry.label, "_", " ")
	l.entries = append(l.entries, entry)
	return nil
}

// images numbers classes and domains.
func (l *listing) images() (*source.Listing, error) {
	out := &source.Listing{}
	labels, whole := map[string]int{}, true
	domains := map[string]bool{}
	for _, e := range l.entries {
		n, err := strconv.Atoi(e.label)
		whole = whole && err == nil
		labels[e.label] = n
		domains[e.domain] = true
	}

	if !whole {
		for i, name := range source.SortedKeys(labels) {
			labels[name] = i
		}
	}

	if len(domains) > 1 || !domains[""] {
		out.Domains = source.SortedKeys(domains)
	}

	at := map[string]int{}
	for i, d := range out.Domains {
		at[d] = i
	}

	for _, e := range l.entries {
		name := e.class
		if name == "" {
			name = e.label
		} else if !whole {
			return nil, fmt.Errorf("%s: label %q and class %q are both names: expected numbers in label where there "+
				"is a class", e.where, e.label, e.class)
		}
		it := source.Item{Path: filepath.ToSlash(e.path), Label: labels[e.label], Domain: at[e.domain], Split: e.split}
		if err := out.AddNamed(e.where, name, it); err != nil {
			return nil, err
		}
	}

	if !slices.ContainsFunc(l.entries, func(e entry) bool { return e.split == "val" || e.split == "test" }) {
		out.HoldOut()
		out.Notes = append(out.Notes, "the list has no images for val or test: two of every ten images of each class "+
			"are held out for testing")
	} else {
		out.ValAsTest()
	}

	return out, nil
}
