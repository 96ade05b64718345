package coop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

// release describes a set of the CoOp family: the location of CoOp's split file, and the original lists that are read
// if there is none.
type release struct {
	folders []string // names of the set's folder; the first is CoOp's
	inner   []string // folders inside it that may hold everything
	split   string   // CoOp's split file
	images  string   // what its paths are relative to
	classes int      // number of classes in the whole release
	layouts []layout // in order of preference
}

// layout is one of the ways in which the original release of a set lists its images and labels.
type layout struct {
	// needs lists paths that must exist in the set's folder. A path that starts with "?" may be missing; for "a|b", one
	// of the two must exist.
	needs []string
	// read gets the paths that were found, in the order of needs, with "" for a missing one.
	read func(cfg source.Config, paths []string) (*source.Listing, error)
}

// open opens a set from its own folder, or from the folder above it, such as CoOp's $DATA. CoOp's split file takes
// precedence over the lists of the release.
func (r release) open(cfg source.Config) (*data.Set, error) {
	f := source.Finder{}
	dirs, err := dirs(f, cfg.Root, r)
	if err != nil {
		return nil, err
	}

	listing, err := r.listing(cfg, f, dirs)
	if err != nil {
		return nil, err
	}

	s, err := listing.Set(cfg)
	if err == nil && len(s.Classes) != r.classes {
		s.Notes = append(s.Notes, fmt.Sprintf("found %d classes; the release of %s has %d", len(s.Classes), cfg.Set,
			r.classes))
	}

	return s, err
}

// listing reads the first list that exists.
func (r release) listing(cfg source.Config, finder source.Finder, dirs []string) (*source.Listing, error) {
	for _, dir := range dirs {
		path, err := finder.Split(dir, r.split)
		if err != nil {
			return nil, err
		}
		if path != "" && !r.foreign(path) {
			listing, err := readSplitFile(path)
			if err != nil {
				return nil, err
			}
			listing.Layout = "CoOp's split file " + filepath.Base(path)
			return listing, locate(listing, finder, dir, dirs, r.images)
		}
	}

	for _, layout := range r.layouts {
		for _, dir := range dirs {
			paths, err := finder.All(dir, layout.needs)
			if err != nil {
				return nil, err
			}

			if paths == nil {
				continue
			}

			if path, _ := finder.Split(dir, r.split); path != "" {
				return nil, fmt.Errorf("%s is the split file of another set than %s: set data.set to that, or "+
					"data.root to the folder of %s", path, cfg.Set, r.folders[0])
			}

			listing, err := layout.read(cfg, paths)
			if err != nil {
				return nil, err
			}

			listing.Root, listing.Layout = dir, "the release's own files, "+source.FolderNames(paths)
			return listing, nil
		}
	}

	return nil, source.NothingFound(r.missing(cfg), dirs)
}

// foreign reports whether a split file belongs to another set, by its name.
func (r release) foreign(path string) bool {
	name := filepath.Base(path)
	return !source.SameName(name, r.split) && slices.ContainsFunc(table, func(other set) bool {
		return source.SameName(name, other.split)
	})
}

// missing returns an error with the paths that were tried, in data.root and in the set's folder under it.
func (r release) missing(cfg source.Config) error {
	var tried []string
	for _, dir := range []string{filepath.Join(cfg.Root, r.folders[0]), cfg.Root} {
		if r.split != "" {
			tried = append(tried, filepath.Join(dir, r.split))
		}
		for _, l := range r.layouts {
			for _, need := range l.needs {
				if first, _, _ := strings.Cut(need, "|"); !strings.HasPrefix(need, "?") {
					tried = append(tried, filepath.Join(dir, filepath.FromSlash(first)))
				}
			}
		}
	}

	slices.Sort(tried)
	return fmt.Errorf("no %s in %s: looked for %s: set data.root to the folder that holds %s, or to that folder itself",
		cfg.Set, cfg.Root, strings.Join(slices.Compact(tried), ", "), r.folders[0])
}

// dirs returns the folders that may hold the set: folders with one of its names under root, folders inside these, and
// root.
func dirs(f source.Finder, root string, r release) ([]string, error) {
	out := []string{root}
	for range 2 {
		for _, dir := range out[:len(out):len(out)] {
			found, err := f.Candidates(dir, append(slices.Clone(r.folders), r.inner...)...)
			if err != nil {
				return nil, err
			}
			for _, sub := range found {
				if !slices.Contains(out, sub) {
					out = append(out, sub)
				}
			}
		}
	}

	return append(out[1:], root), nil
}

// locate sets the folder to which a split file's paths are relative: the first candidate that has one of the first
// images.
func locate(listing *source.Listing, f source.Finder, dir string, dirs []string, images string) error {
	listing.Root = dir
	var there, tried []string
	for _, d := range append([]string{dir}, dirs...) {
		for _, name := range []string{images, "."} {
			p, err := f.Lookup(d, name)
			if err != nil {
				return err
			}
			if source.IsFolder(p) && !slices.Contains(there, p) {
				there = append(there, p)
			}
			if p == "" && d == dir {
				tried = append(tried, filepath.Join(d, filepath.FromSlash(name)))
			}
		}
	}

	for _, p := range there {
		for _, it := range listing.Items[:min(16, len(listing.Items))] {
			if _, err := os.Stat(filepath.Join(p, filepath.FromSlash(it.Path))); err == nil {
				listing.Images = p
				return nil
			}
		}
	}

	return fmt.Errorf("%s lists %s, but it is not under %s: put the images where CoOp has them", listing.List,
		listing.Items[0].Path, strings.Join(append(tried, there...), ", nor under "))
}
