package domains

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

// fromFolders reads DOMAIN/CLASS/, DOMAIN/images/CLASS/ and DOMAIN/{train,val,test}/CLASS/.
func (p *domainPlace) fromFolders() (*data.Set, error) {
	w := p.cfg.Walk()
	w.ByDomain = p.byDomain
	for i, dir := range p.dirs {
		if dir == "" {
			continue
		}
		if err := p.domainFolder(w, p.images, dir, p.domains[i].name); err != nil {
			return nil, err
		}
	}

	return p.finish(w, "DOMAIN/ folders of "+p.title)
}

// domainFolder reads one domain. Notes on its splits name the folder noted.
func (d *domainSet) domainFolder(walk *source.Walk, noted, dir, domain string) error {
	sub, err := source.Folders(dir)
	if err == nil && len(sub) == 1 && (named(sub[0], "images") || named(sub[0], "full")) {
		sub, err = source.Folders(sub[0])
	}

	if err == nil && len(sub) == 0 {
		err = fmt.Errorf("%s holds no folders: expected one folder per class in every domain", dir)
	}

	if err != nil {
		return err
	}

	splits, others := source.SplitsAmong(sub)
	if splits["train"] != nil && len(others) == 1 && named(others[0], "full") { // VLCS: full repeats the splits
		others = nil
	}

	if splits["train"] == nil || len(others) > 0 {
		return d.domainClasses(walk, "", domain, sub)
	}

	return walk.Splits(noted, splits, func(split string, dirs []string) error {
		return d.domainClasses(walk, split, domain, dirs)
	})
}

func named(path, name string) bool { return source.NormalizeName(filepath.Base(path)) == name }

// domainClasses reads class folders in the order of ImageFolder: by the bytes of folder names and file names.
func (d *domainSet) domainClasses(walk *source.Walk, split, domain string, dirs []string) error {
	for _, dir := range dirs {
		if d.strict && d.index(filepath.Base(dir)) < 0 {
			return fmt.Errorf("%s is not a class of %s: expected %s, or their numbers from 0", dir, d.title,
				d.expectedClasses())
		}
	}

	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return d.class(filepath.Base(dir)) == "" })
	if len(dirs) == 0 {
		return fmt.Errorf("domain %s of %s has no class folders: expected %s", domain, d.title, d.expectedClasses())
	}

	start := len(walk.Found)
	if err := walk.Classes(split, domain, dirs); err != nil {
		return err
	}

	list := walk.Found[start:]
	for i := range list {
		list[i].Class = d.class(list[i].Class)
	}

	slices.SortStableFunc(list, func(a, b source.Found) int {
		x, y := a.Example.Path, b.Example.Path
		return cmp.Or(strings.Compare(filepath.Dir(x), filepath.Dir(y)), strings.Compare(x, y))
	})

	return nil
}

func (d *domainSet) expectedClasses() string {
	if d.classes == nil {
		return "one folder per class"
	}
	return strings.Join(d.classes, ", ")
}
