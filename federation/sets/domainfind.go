package sets

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// domainSet is what is known about a published set in several domains.
type domainSet struct {
	title   string
	folders []string     // names of the set's folder
	inner   []string     // folders in it that may hold the domains
	domains []domainName // in the order of their names
	classes []string     // folder names in the order of their labels; nil: those on disk, in byte order as in torchvision's ImageFolder
	count   int          // classes of the published set
	partial bool         // some domains may be missing
	skip    []string     // paths from the domain on that are known to be broken
	order   func(a, b string) int
}

// domainName is a domain: how it is shown, and other names that its folder has.
type domainName struct {
	name   string
	others []string
}

// domainPlace is where a set was found.
type domainPlace struct {
	*domainSet
	root   string   // data.root
	home   string   // the set's folder
	images string   // the folder that holds the domains
	dirs   []string // of the domains; "" for one that is missing
	finder finder
}

// under looks a domain's folder up.
func (d domainName) under(f finder, dir string) (string, error) {
	for _, name := range append([]string{d.name}, d.others...) {
		path, ok, err := f.lookup(dir, name)
		if err != nil {
			return "", err
		}
		if ok && isFolder(path) {
			return path, nil
		}
	}
	return "", nil
}

// candidates are root and the folders under it that have one of the names, nested names with slashes.
func candidates(f finder, root string, names []string) ([]string, error) {
	if _, err := f.list(root); err != nil {
		return nil, err
	}
	out := []string{root}
	for _, name := range names {
		path, ok, err := f.lookup(root, name)
		if err != nil {
			return nil, err
		}
		if ok && isFolder(path) && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// find looks for the folders of the domains in root, in the set's folder under it, and in their inner folders, and takes the
// place that has most of them.
func (d *domainSet) find(root string) (*domainPlace, error) {
	f := finder{}
	homes, err := candidates(f, root, d.folders)
	if err != nil {
		return nil, err
	}
	var best *domainPlace
	most := 0
	for _, home := range homes {
		places, err := candidates(f, home, d.inner)
		if err != nil {
			return nil, err
		}
		for _, dir := range places {
			p := &domainPlace{domainSet: d, root: root, home: home, images: dir, finder: f}
			n := 0
			for _, name := range d.domains {
				path, err := name.under(f, dir)
				if err != nil {
					return nil, err
				}
				if path != "" {
					n++
				}
				p.dirs = append(p.dirs, path)
			}
			if n > most {
				best, most = p, n
			}
		}
	}
	if best != nil {
		return best, best.complete()
	}
	var looked []string
	for _, home := range append([]string{"."}, d.folders...) {
		for _, dir := range append([]string{"."}, d.inner...) {
			looked = append(looked, filepath.Join(root, home, dir))
		}
	}
	return nil, fmt.Errorf("no %s in %s: looked for folders %s in %s: give data.root the folder that holds them or the one above it",
		d.title, root, d.names(), strings.Join(looked, ", "))
}

func (d *domainSet) names() string {
	var out []string
	for _, n := range d.domains {
		out = append(out, n.name)
	}
	return strings.Join(out, ", ")
}

// complete refuses a set of which a domain is missing.
func (p *domainPlace) complete() error {
	for i, dir := range p.dirs {
		if dir == "" && !p.partial {
			return fmt.Errorf("%s does not exist: %s has the domains %s", filepath.Join(p.images, p.domains[i].name), p.title, p.domainSet.names())
		}
	}
	return nil
}

// class is the name of a class that a folder or a label stands for, "" for a class that the set leaves out.
func (d *domainSet) class(name string) string {
	if d.classes != nil {
		i := slices.IndexFunc(d.classes, func(c string) bool { return fold(c) == fold(name) })
		if i < 0 {
			return ""
		}
		name = d.classes[i]
	}
	return strings.ReplaceAll(name, "_", " ")
}

// compareClasses is the order of labels: that of the list of classes, or of the names' bytes.
func (d *domainSet) compareClasses(a, b string) int {
	if d.classes != nil {
		at := func(name string) int {
			return slices.IndexFunc(d.classes, func(c string) bool { return fold(c) == fold(name) })
		}
		return at(a) - at(b)
	}
	a, b = strings.ReplaceAll(a, " ", "_"), strings.ReplaceAll(b, " ", "_")
	if d.order != nil {
		return d.order(a, b)
	}
	return strings.Compare(a, b)
}

// broken tells whether a path, from the domain on, is known not to be an image.
func (d *domainSet) broken(path string) bool {
	return slices.ContainsFunc(d.skip, func(s string) bool {
		return strings.HasSuffix(filepath.ToSlash(path), s)
	})
}

// finish makes a set of what was found and notes where it is not as published.
func (p *domainPlace) finish(w *walk, notes ...string) (*data.Set, error) {
	kept := w.found[:0]
	for _, f := range w.found {
		if p.broken(f.example.Path) {
			w.skipped = append(w.skipped, data.Skipped{Name: f.example.Path, Reason: "is known to be broken in " + p.title})
			continue
		}
		kept = append(kept, f)
	}
	w.found = kept
	if w.order == nil {
		w.order = p.compareClasses
	}
	s, err := w.set()
	if err != nil {
		return nil, err
	}
	s.Notes = append(s.Notes, notes...)
	if p.count > 0 && len(s.Classes) != p.count {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: found %d classes, but %s has %d", p.images, len(s.Classes), p.title, p.count))
	}
	if len(s.Domains) < len(p.domains) {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: found the domains %s of %s", p.images, strings.Join(s.Domains, ", "), p.domainSet.names()))
	}
	if p.classes != nil {
		p.number(s)
	}
	return s, nil
}

// number gives a set with a fixed list of classes all of them, so that a label does not depend on what else is there.
func (d *domainSet) number(s *data.Set) {
	to := make([]int, len(s.Classes))
	for i, name := range s.Classes {
		to[i] = slices.IndexFunc(d.classes, func(c string) bool { return fold(c) == fold(name) })
	}
	for _, list := range [][]data.Example{s.Train, s.Val, s.Test} {
		for i := range list {
			list[i].Label = to[list[i].Label]
		}
	}
	s.Classes = spaced(d.classes)
}

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
