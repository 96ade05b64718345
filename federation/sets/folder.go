package sets

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
)

const folderExpects = "CLASS/, DOMAIN/CLASS/, {train,val,test}/CLASS/ or {train,val,test}/DOMAIN/CLASS/; of the " +
	"splits only train must be there"

// openFolder lists an image folder in one of four layouts. Class names are folder names with underscores read as
// spaces; classes, domains and files are sorted without regard to case.
func openFolder(cfg Config) (*data.Set, error) {
	w := &walk{root: cfg.Root, skip: cfg.Corrupt == data.Skip}
	top, err := w.folders(cfg.Root)
	if err != nil {
		return nil, err
	}
	if len(top) == 0 {
		return nil, fmt.Errorf("%s holds no folders: expected %s", cfg.Root, folderExpects)
	}
	layout := cfg.Layout
	if layout == "auto" {
		if layout, err = w.detect(top); err != nil {
			return nil, err
		}
	}
	switch layout {
	case classesLayout, domainsLayout:
		err = w.level("", top, layout == domainsLayout)
	default:
		err = w.splits(top, layout == splitDomainsLayout)
	}
	if err != nil {
		return nil, err
	}
	s, err := w.set()
	if err != nil {
		return nil, err
	}
	s.Layout = layoutForms[layout]
	return s, nil
}

// level reads class folders, or domain folders with class folders in them.
func (w *walk) level(split string, dirs []string, domains bool) error {
	if !domains {
		return w.classes(split, "", dirs)
	}
	for _, d := range dirs {
		sub, err := w.folders(d)
		if err != nil {
			return err
		}
		if len(sub) == 0 {
			return fmt.Errorf("%s holds no folders: expected one folder per class in every domain", d)
		}
		if err := w.classes(split, filepath.Base(d), sub); err != nil {
			return err
		}
	}
	return nil
}

// classes reads class folders.
func (w *walk) classes(split, domain string, dirs []string) error {
	seen := map[string]string{}
	for _, d := range dirs {
		name := strings.ReplaceAll(filepath.Base(d), "_", " ")
		key := strings.ToLower(name)
		if seen[key] != "" {
			return fmt.Errorf("%s and %s are the same class but for case or underscores: keep one", seen[key], d)
		}
		seen[key] = d
		files, err := w.images(d)
		if err != nil {
			return err
		}
		if len(files) == 0 && (split == "val" || split == "test") {
			w.note("%s holds no images", d)
			continue
		}
		if len(files) == 0 {
			return fmt.Errorf("%s holds no images: expected files that end in %s, or remove the folder", d,
				strings.Join(extensions, ", "))
		}
		for _, f := range files {
			w.found = append(w.found, found{split, domain, name, f})
		}
	}
	return nil
}

// set turns what was found into a set. Where there are no split folders, the holdout rule makes the splits.
func (w *walk) set() (*data.Set, error) {
	s := &data.Set{Skipped: w.skipped, Notes: w.notes}
	names := map[string]string{} // by lower case
	domains := map[string]bool{}
	train := map[string]bool{}
	for _, f := range w.found {
		key := strings.ToLower(f.class)
		if names[key] == "" {
			names[key] = f.class
		}
		domains[f.domain] = true
		train[key] = train[key] || f.split != "test" && f.split != "val"
	}
	label := map[string]int{}
	keys := sortedKeys(names)
	if w.order != nil {
		slices.SortStableFunc(keys, func(a, b string) int { return w.order(names[a], names[b]) })
	}
	for i, key := range keys {
		if !train[key] {
			return nil, fmt.Errorf("%s: class %q has no training images: expected a folder of that name under train",
				w.root, names[key])
		}
		s.Classes = append(s.Classes, names[key])
		label[key] = i
	}
	s.Domains = sortedKeys(domains)
	if slices.Equal(s.Domains, []string{""}) {
		s.Domains = nil
	}
	unsplit := make([][]data.Example, max(1, len(s.Domains)))
	for _, f := range w.found {
		e := f.example
		e.Label = label[strings.ToLower(f.class)]
		e.Domain = max(0, slices.Index(s.Domains, f.domain))
		switch f.split {
		case "":
			unsplit[e.Domain] = append(unsplit[e.Domain], e)
		case "train":
			s.Train = append(s.Train, e)
		case "val":
			s.Val = append(s.Val, e)
		case "test":
			s.Test = append(s.Test, e)
		}
	}
	for _, list := range unsplit {
		holdOut(s, list)
	}
	return s, nil
}

// holdOut splits a list, sorted by class and file.
func holdOut(s *data.Set, list []data.Example) {
	for i, e := range list {
		if heldOut(i) == "train" {
			s.Train = append(s.Train, e)
		} else {
			s.Test = append(s.Test, e)
		}
	}
}

// heldOut is FedPHA's rule (utils/data_utils.py): example i goes to train when i mod 10 is at most 7, otherwise to
// test. Office-31 becomes 3,292 and 818 examples this way.
func heldOut(i int) string {
	if i%10 <= 7 {
		return "train"
	}
	return "test"
}
