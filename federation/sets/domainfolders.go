package sets

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// fromFolders reads DOMAIN/CLASS/, DOMAIN/images/CLASS/ and DOMAIN/{train,val,test}/CLASS/.
func (p *domainPlace) fromFolders(cfg Config) (*data.Set, error) {
	w := &walk{root: cfg.Root, skip: cfg.Corrupt == data.Skip}
	note := ""
	for i, dir := range p.dirs {
		if dir == "" {
			continue
		}
		valTests, err := w.domainFolder(dir, p.domains[i].name, p.domainSet)
		if err != nil {
			return nil, err
		}
		if valTests {
			note = fmt.Sprintf("%s has train and val but no test folders: val is the test split", p.images)
		}
	}
	if note == "" {
		return p.finish(w)
	}
	return p.finish(w, note)
}

// domainFolder reads one domain. It is true where val takes the place of test.
func (w *walk) domainFolder(dir, domain string, d *domainSet) (valTests bool, err error) {
	sub, err := w.folders(dir)
	if err != nil {
		return false, err
	}
	if len(sub) == 1 && fold(filepath.Base(sub[0])) == "images" {
		if sub, err = w.folders(sub[0]); err != nil {
			return false, err
		}
	}
	if len(sub) == 0 {
		return false, fmt.Errorf("%s holds no folders: expected one folder per class in every domain", dir)
	}
	have := map[string]string{}
	for _, s := range sub {
		have[domainSplits[strings.ToLower(filepath.Base(s))]] = s
	}
	if have["train"] == "" || have[""] != "" {
		return false, w.domainClasses("", domain, sub, d)
	}
	valTests = have["test"] == "" && have["val"] != ""
	for _, split := range []string{"train", "val", "test"} {
		if have[split] == "" {
			continue
		}
		sub, err := w.folders(have[split])
		if err != nil {
			return false, err
		}
		if split == "val" && valTests {
			split = "test"
		}
		if err := w.domainClasses(split, domain, sub, d); err != nil {
			return false, err
		}
	}
	return valTests, nil
}

// domainSplits are the names of splits inside a domain, with those of the synthetic digits.
var domainSplits = map[string]string{"train": "train", "training": "train", "test": "test", "testing": "test", "val": "val",
	"valid": "val", "validation": "val", "imgs_train": "train", "imgs_valid": "val", "train_images": "train", "test_images": "test"}

// domainClasses reads class folders in the order of ImageFolder: by the bytes of folder and file names.
func (w *walk) domainClasses(split, domain string, dirs []string, d *domainSet) error {
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return d.class(filepath.Base(dir)) == "" })
	if len(dirs) == 0 {
		return fmt.Errorf("domain %s of %s has no class folders: expected %s", domain, d.title, d.expectedClasses())
	}
	start := len(w.found)
	if err := w.classes(split, domain, dirs); err != nil {
		return err
	}
	list := w.found[start:]
	for i := range list {
		list[i].class = d.class(list[i].class)
	}
	slices.SortStableFunc(list, func(a, b found) int {
		if c := strings.Compare(filepath.Dir(a.example.Path), filepath.Dir(b.example.Path)); c != 0 {
			return c
		}
		return strings.Compare(a.example.Path, b.example.Path)
	})
	return nil
}

func (d *domainSet) expectedClasses() string {
	if d.classes == nil {
		return "one folder per class"
	}
	return strings.Join(d.classes, ", ")
}
