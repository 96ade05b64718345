package domains

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/sets/source"
)

// fromFolders reads DOMAIN/CLASS/, DOMAIN/images/CLASS/ and DOMAIN/{train,val,test}/CLASS/.
func (p *domainPlace) fromFolders(cfg source.Config) (*data.Set, error) {
	w := &source.Walk{Root: cfg.Root, Skip: cfg.Corrupt == data.Skip}
	note := ""
	for i, dir := range p.dirs {
		if dir == "" {
			continue
		}
		valTests, err := domainFolder(w, dir, p.domains[i].name, p.domainSet)
		if err != nil {
			return nil, err
		}
		if valTests {
			note = fmt.Sprintf("%s has train and val but no test folders: val is the test split", p.images)
		}
	}
	var notes []string
	if note != "" {
		notes = append(notes, note)
	}
	s, err := p.finish(w, notes...)
	if err == nil {
		s.Layout = "DOMAIN/ folders of " + p.title
	}
	return s, err
}

// domainFolder reads one domain. It is true where val takes the place of test.
func domainFolder(w *source.Walk, dir, domain string, d *domainSet) (valTests bool, err error) {
	sub, err := w.Folders(dir)
	if err != nil {
		return false, err
	}
	if len(sub) == 1 && source.Fold(filepath.Base(sub[0])) == "images" {
		if sub, err = w.Folders(sub[0]); err != nil {
			return false, err
		}
	}
	if len(sub) == 0 {
		return false, fmt.Errorf("%s holds no folders: expected one folder per class in every domain", dir)
	}
	of, others := source.SplitsAmong(sub)
	if of["train"] == nil || len(others) > 0 {
		return false, domainClasses(w, "", domain, sub, d)
	}
	valTests = of["test"] == nil && of["val"] != nil
	for _, split := range []string{"train", "val", "test"} {
		if len(of[split]) > 1 {
			return false, fmt.Errorf("%s all hold the %s split: keep one", strings.Join(of[split], " and "), split)
		}
		if of[split] == nil {
			continue
		}
		sub, err := w.Folders(of[split][0])
		if err != nil {
			return false, err
		}
		switch {
		case split == "val" && valTests:
			split = "test"
		case len(of) == 1:
			split = ""
			w.Notes = append(w.Notes, fmt.Sprintf("%s has no folder of test or validation images: two of every ten "+
				"images of %s are held out for testing",
				dir, filepath.Base(of["train"][0])))
		}
		if err := domainClasses(w, split, domain, sub, d); err != nil {
			return false, err
		}
	}
	return valTests, nil
}

// domainClasses reads class folders in the order of ImageFolder: by the bytes of folder and file names.
func domainClasses(w *source.Walk, split, domain string, dirs []string, d *domainSet) error {
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return d.class(filepath.Base(dir)) == "" })
	if len(dirs) == 0 {
		return fmt.Errorf("domain %s of %s has no class folders: expected %s", domain, d.title, d.expectedClasses())
	}
	start := len(w.Found)
	if err := w.Classes(split, domain, dirs); err != nil {
		return err
	}
	list := w.Found[start:]
	for i := range list {
		list[i].Class = d.class(list[i].Class)
	}
	slices.SortStableFunc(list, func(a, b source.Found) int {
		if c := strings.Compare(filepath.Dir(a.Example.Path), filepath.Dir(b.Example.Path)); c != 0 {
			return c
		}
		return strings.Compare(a.Example.Path, b.Example.Path)
	})
	return nil
}

func (d *domainSet) expectedClasses() string {
	if d.classes == nil {
		return "one folder per class"
	}
	return strings.Join(d.classes, ", ")
}
