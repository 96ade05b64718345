package domains

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
)

// domainSet describes a published set with several domains.
type domainSet struct {
	title   string
	folders []string     // names of the set's folder
	inner   []string     // folders in it that may hold the domains
	domains []domainName // in the order of their names
	// folder names in the order of their labels; nil: the folders on disk, in byte order as in torchvision's
	// ImageFolder
	classes []string
	strict  bool     // a class folder that is not in classes, by name or by number, is an error
	count   int      // number of classes of the published set
	partial bool     // some domains may be missing
	skip    []string // paths of images, from the domain on, that are known to be broken
	order   func(a, b string) int
	lists   domainListNames // of the published splits, if it has any
	pickles bool            // it may be stored as pickles of paths and labels
	// byDomain selects the split of FedPHA's public code if the folders have no split (source.HoldOutInDomain).
	byDomain bool
}

// domainName is the name of a domain, and other names of its folder.
type domainName struct {
	name   string
	others []string
}

// domainPlace is the place where a set was found.
type domainPlace struct {
	*domainSet
	cfg    source.Config
	home   string   // the set's folder
	images string   // the folder that holds the domains
	dirs   []string // of the domains; "" if missing
	finder source.Finder
}

// names returns all names of the domain, inserted into a pattern with %s.
func (d domainName) names(pattern string) []string {
	out := []string{fmt.Sprintf(pattern, d.name)}
	for _, other := range d.others {
		out = append(out, fmt.Sprintf(pattern, other))
	}
	return out
}

// find looks for the folders of the domains in root, in the set's folder under it, and in their inner folders, and
// returns the place with the most domains.
func (d *domainSet) find(cfg source.Config) (*domainPlace, error) {
	finder, root := source.Finder{}, cfg.Root
	homes, err := finder.Candidates(root, d.folders...)
	if err != nil {
		return nil, err
	}

	var best *domainPlace
	most := 0
	for _, home := range homes {
		places, err := finder.Candidates(home, d.inner...)
		if err != nil {
			return nil, err
		}

		for _, dir := range places {
			place := &domainPlace{domainSet: d, cfg: cfg, home: home, images: dir, finder: finder}
			n := 0
			for _, name := range d.domains {
				path, err := finder.First(true, []string{dir}, name.names("%s")...)
				if err != nil {
					return nil, err
				}
				if path != "" {
					n++
				}
				place.dirs = append(place.dirs, path)
			}

			if n > most {
				best, most = place, n
			}
		}
	}

	// a folder of one domain among other folders of data.root is another set, such as Caltech101 beside VLCS
	foreign := best != nil && best.images == root && !d.partial && 2*most < len(d.domains)
	if best != nil && !foreign {
		if i := slices.Index(best.dirs, ""); i >= 0 && !d.partial {
			return nil, fmt.Errorf("%s does not exist: %s has the domains %s", filepath.Join(best.images,
				d.domains[i].name), d.title, d.names())
		}
		return best, nil
	}

	looked := []string{root}
	for _, home := range d.folders {
		looked = append(looked, filepath.Join(root, home))
	}

	return nil, source.NothingFound(fmt.Errorf("no %s: looked for folders %s in %s, and in %s there: set data.root "+
		"to the folder that holds them or to the one above it", d.title, d.names(), strings.Join(looked, ", "),
		strings.Join(d.inner, ", ")), homes)
}

func (d *domainSet) names() string {
	return strings.Join(convert.Slice(d.domains, func(n domainName) string { return n.name }), ", ")
}

// index returns the index of a class in the list of classes, or -1.
func (d *domainSet) index(name string) int {
	if n, err := strconv.Atoi(name); d.strict && err == nil && n >= 0 && n < len(d.classes) {
		return n
	}
	return slices.IndexFunc(d.classes, func(c string) bool { return source.SameName(c, name) })
}

// class returns the class name of a folder or a label, or "" for a class that the set omits.
func (d *domainSet) class(name string) string {
	if d.classes != nil {
		i := d.index(name)
		if i < 0 {
			return ""
		}
		name = d.classes[i]
	}

	return strings.ReplaceAll(name, "_", " ")
}

// compareClasses compares classes by the order of their labels: that of the list of classes, or of the names' bytes.
func (d *domainSet) compareClasses(a, b string) int {
	if d.classes != nil {
		return d.index(a) - d.index(b)
	}

	a, b = strings.ReplaceAll(a, " ", "_"), strings.ReplaceAll(b, " ", "_")
	if d.order != nil {
		return d.order(a, b)
	}

	return strings.Compare(a, b)
}

// skipBroken skips a path, from the domain on, that is known to hold no valid image, and reports whether it did.
func (d *domainSet) skipBroken(w *source.Walk, path string) bool {
	broken := slices.ContainsFunc(d.skip, func(s string) bool { return strings.HasSuffix(filepath.ToSlash(path), s) })
	if broken {
		w.Skipped = append(w.Skipped, data.Skipped{Name: path, Reason: "is known to be broken in " + d.title})
	}
	return broken
}

// finish makes the set of a layout, and notes how it differs from the published one.
func (p *domainPlace) finish(w *source.Walk, layout string, notes ...string) (*data.Set, error) {
	w.Found = slices.DeleteFunc(w.Found, func(f source.Found) bool { return p.skipBroken(w, f.Example.Path) })
	if w.Order == nil {
		w.Order = p.compareClasses
	}

	set, err := w.Set(layout)
	if err != nil {
		return nil, err
	}

	set.Notes = append(set.Notes, notes...)
	if p.count > 0 && len(set.Classes) != p.count {
		set.Notes = append(set.Notes, fmt.Sprintf("%s: found %d classes, but %s has %d", p.images, len(set.Classes),
			p.title, p.count))
	}

	if len(set.Domains) < len(p.domains) {
		set.Notes = append(set.Notes, fmt.Sprintf("%s: found the domains %s of %s", p.images,
			strings.Join(set.Domains, ", "), p.domainSet.names()))
	}

	if p.classes != nil {
		p.number(set)
	}

	return set, nil
}

// number gives a set with a fixed list of classes all of them, so that labels do not depend on which classes are
// present.
func (d *domainSet) number(s *data.Set) {
	to := convert.Slice(s.Classes, d.index)
	for _, list := range [][]data.Example{s.Train, s.Val, s.Test} {
		for i := range list {
			list[i].Label = to[list[i].Label]
		}
	}
	s.Classes = source.UnderscoresToSpaces(d.classes)
}
