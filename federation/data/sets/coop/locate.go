package coop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data/sets/source"
)

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
func locate(l *source.Listing, f source.Finder, dir string, dirs, images []string) error {
	l.Root = dir
	var there, tried []string
	for _, d := range append([]string{dir}, dirs...) {
		for _, name := range append(slices.Clone(images), ".") {
			p, ok, err := f.Lookup(d, name)
			if err != nil {
				return err
			}
			if st, e := os.Stat(p); ok && e == nil && st.IsDir() && !slices.Contains(there, p) {
				there = append(there, p)
			}
			if !ok && d == dir {
				tried = append(tried, filepath.Join(d, filepath.FromSlash(name)))
			}
		}
	}
	for _, p := range there {
		for _, it := range l.Items[:min(16, len(l.Items))] {
			if _, err := os.Stat(filepath.Join(p, filepath.FromSlash(it.Path))); err == nil {
				l.Images = p
				return nil
			}
		}
	}
	return fmt.Errorf("%s lists %s, but it is not under %s: put the images where CoOp has them", l.List,
		l.Items[0].Path, strings.Join(append(tried, there...), ", nor under "))
}
