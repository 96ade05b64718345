package domains

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/formats/pickle"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
)

// domainListDirs lists the folders that may hold the lists of a set.
var domainListDirs = []string{".", "splits", "label", "labels", "lists", "pacs_label",
	"Train val splits and h5py files pre-read"}

// domainListNames holds the names of the lists of each split, with %s for the domain.
type domainListNames struct{ train, cross, test []string }

var txtLists = domainListNames{train: []string{"%s_train.txt"}, test: []string{"%s_test.txt"}}

// search reads the lists of one split in the first folder that has any, and returns that folder; without lists, where
// describes the names and folders that were tried.
func (p *domainPlace) search(names []string) (lists [][]domainLine, where string, err error) {
	var looked []string
	for _, top := range []string{p.home, p.images, filepath.Dir(p.images), p.cfg.Root} {
		for _, sub := range domainListDirs {
			dir, err := p.finder.Lookup(top, sub)
			if err != nil {
				return nil, "", err
			}
			if dir == "" || slices.Contains(looked, dir) {
				continue
			}
			lists, err := p.readLists(dir, names...)
			if err != nil || slices.ContainsFunc(lists, func(l []domainLine) bool { return l != nil }) {
				return lists, dir, err
			}
			looked = append(looked, dir)
		}
	}

	files := convert.Slice(names, func(name string) string { return fmt.Sprintf(name, p.domains[0].name) })
	return nil, strings.Join(files, " or ") + " and so on in " + strings.Join(looked, ", "), nil
}

// fromLists reads a set by its published lists. Training images in a test list, as in PACS, are removed from the test
// split unless the layout is lists-as-published. Without lists it returns nil and the places that were searched.
func (p *domainPlace) fromLists() (set *data.Set, where string, err error) {
	published := p.cfg.Layout == "lists-as-published"
	train, where, err := p.search(p.lists.train)
	if err != nil || train == nil {
		return nil, where, err
	}

	cross, _, err := p.search(p.lists.cross)
	if err != nil {
		return nil, where, err
	}

	test, missing, err := p.search(p.lists.test)
	if err != nil {
		return nil, where, err
	}

	var notes []string
	if test == nil {
		if cross == nil || published {
			return nil, where, fmt.Errorf("there are training lists but no test lists: looked for %s", missing)
		}
		test, cross = cross, nil
		notes = append(notes, where+": there are no test lists: the lists for cross-validation are the test split")
	}

	listed := p.listed()
	leaks := 0
	for i, dir := range p.dirs {
		if dir == "" {
			continue
		}

		for j, lists := range [][][]domainLine{train, test} {
			if lists[i] == nil {
				return nil, where, fmt.Errorf("%s has no list of %s images for domain %s, as other domains have", where,
					[]string{"training", "test"}[j], p.domains[i].name)
			}
		}

		seen := lineSet(train[i])
		kept := without(test[i], seen)
		leaks += len(test[i]) - len(kept)
		if published {
			kept = test[i]
		}

		if err := listed.add("train", i, train[i]); err != nil {
			return nil, where, err
		}

		if cross != nil && cross[i] != nil && !published {
			for path := range lineSet(kept) {
				seen[path] = true
			}
			if err := listed.add("val", i, without(cross[i], seen)); err != nil {
				return nil, where, err
			}
		}

		if err := listed.add("test", i, kept); err != nil {
			return nil, where, err
		}
	}

	switch {
	case leaks > 0 && published:
		notes = append(notes, fmt.Sprintf("%s: %d test images are also training images, kept as published", where,
			leaks))
	case leaks > 0:
		notes = append(notes, fmt.Sprintf("%s: %d test images are also training images and were removed from the "+
			"test split; data.layout: lists-as-published keeps them", where, leaks))
	}

	set, err = listed.finish("lists in "+where, notes...)
	return set, where, err
}

func lineSet(lines []domainLine) map[string]bool {
	out := map[string]bool{}
	for _, l := range lines {
		out[l.path] = true
	}
	return out
}

// without returns the list without the lines of some paths.
func without(lines []domainLine, paths map[string]bool) []domainLine {
	return slices.DeleteFunc(slices.Clone(lines), func(l domainLine) bool { return paths[l.path] })
}

// fromPickles reads DOMAIN_train.pkl and DOMAIN_test.pkl, as FedBN's code does. Without them it returns nil.
func (p *domainPlace) fromPickles() (set *data.Set, where string, err error) {
	listed := p.listed()
	dirs := slices.Compact([]string{p.home, p.images, p.cfg.Root})
	any := false
	var missing []string
	for i, d := range p.domains {
		for _, split := range []string{"train", "test"} {
			file, err := p.finder.First(false, dirs, d.names("%s_"+split+".pkl")...)
			if err != nil {
				return nil, "", err
			}

			if file == "" {
				if p.dirs[i] != "" {
					missing = append(missing, filepath.Join(p.home, d.name+"_"+split+".pkl"))
				}
				continue
			}

			any = true
			if err := listed.pickled(split, i, file); err != nil {
				return nil, "", err
			}
		}
	}

	where = strings.Join(missing, ", ")
	if !any {
		return nil, where, nil
	}

	if len(missing) > 0 {
		return nil, where, fmt.Errorf("%s does not exist, but other domains have their pickles", missing[0])
	}

	set, err = listed.finish("pickles DOMAIN_{train,test}.pkl")
	return set, where, err
}

// pickled adds the images of one pickle of paths and labels; labels are class names or indices into the list of
// classes.
func (l *listed) pickled(split string, domain int, file string) error {
	var paths []string
	var labels []any
	if err := source.WithFile(file, func(f *os.File, info fs.FileInfo) (err error) {
		paths, labels, err = pickle.ReadPathsAndLabels(f, info.Size())
		return err
	}); err != nil {
		return err
	}

	for i, text := range paths {
		where := fmt.Sprintf("%s: entry %d", file, i)
		name, ok := relative(text)
		parts := strings.Split(name, "/")
		if !ok || len(parts) < 2 {
			return fmt.Errorf("%s: %.80q is not a path domain/class/file", where, text)
		}

		class := ""
		switch v := labels[i].(type) {
		case string:
			class = l.class(v)
		case int:
			if v >= 0 && v < len(l.classes) {
				class = l.class(l.classes[v])
			}
		}

		if class == "" {
			return fmt.Errorf("%s: label %v is not one of %s", where, labels[i], l.expectedClasses())
		}

		if folder := l.class(parts[len(parts)-2]); folder != "" && folder != class {
			return fmt.Errorf("%s: %.80s has label %q: its paths and labels do not match", where, text, class)
		}

		if err := l.image(split, domain, class, name, where); err != nil {
			return err
		}
	}

	return nil
}

// open opens a set that is stored as pickles, with lists, or as folders alone; auto takes the first that exists.
func (d *domainSet) open(cfg source.Config) (*data.Set, error) {
	place, err := d.find(cfg)
	if err != nil {
		return nil, err
	}

	if d.pickles && (cfg.Layout == "auto" || cfg.Layout == "pickles") {
		s, where, err := place.fromPickles()
		if s != nil || err != nil {
			return s, err
		}
		if cfg.Layout == "pickles" {
			return nil, fmt.Errorf("%s has no pickles: looked for %s; use data.layout: auto", place.home, where)
		}
	}

	if d.lists.train != nil && cfg.Layout != "folders" {
		s, where, err := place.fromLists()
		if s != nil || err != nil {
			return s, err
		}
		if cfg.Layout != "auto" {
			return nil, fmt.Errorf("%s has no lists: looked for %s; use data.layout: auto", place.home, where)
		}
	}

	return place.fromFolders()
}
