package sets

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// finder finds files and folders whose names are written in several ways: capitals, and signs between words, do not
// count. It lists a folder once.
type finder map[string][]fs.FileInfo

// fold is a name without what does not count.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

// dirs are the folders that may hold the set: those of its names under root, those inside these, and root.
func (f finder) dirs(root string, r release) ([]string, error) {
	if _, err := f.list(root); err != nil {
		return nil, err
	}
	out := []string{root}
	for range 2 {
		for _, dir := range out[:len(out):len(out)] {
			for _, name := range append(slices.Clone(r.folders), r.inner...) {
				sub, ok, err := f.lookup(dir, name)
				if err != nil {
					return nil, err
				}
				if st, e := os.Stat(sub); ok && e == nil && st.IsDir() && !slices.Contains(out, sub) {
					out = append(out, sub)
				}
			}
		}
	}
	return append(out[1:], root), nil
}

func (f finder) list(dir string) ([]fs.FileInfo, error) {
	if l, ok := f[dir]; ok {
		return l, nil
	}
	l, err := entries(dir)
	if err == nil {
		f[dir] = l
	}
	return l, err
}

// lookup finds a path with forward slashes under dir: the exact name where there is one.
func (f finder) lookup(dir, name string) (string, bool, error) {
	for _, part := range strings.Split(path.Clean(name), "/") {
		next := filepath.Join(dir, part)
		if _, err := os.Stat(next); err != nil {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				return "", false, nil
			}
			list, err := f.list(dir)
			if err != nil {
				return "", false, err
			}
			i := slices.IndexFunc(list, func(e fs.FileInfo) bool { return fold(e.Name()) == fold(part) })
			if i < 0 {
				return "", false, nil
			}
			next = filepath.Join(dir, list[i].Name())
		}
		dir = next
	}
	return dir, true, nil
}

// all finds everything that a form needs. A set's folder that is itself the folder of images called for will do too.
func (f finder) all(dir string, needs []string) ([]string, bool, error) {
	var out []string
	for i, need := range needs {
		need, optional := strings.CutPrefix(need, "?")
		found := ""
		for _, name := range strings.Split(need, "|") {
			p, ok, err := f.lookup(dir, name)
			if err != nil {
				return nil, false, err
			}
			if !ok && i == 0 && len(needs) == 1 && fold(filepath.Base(dir)) == fold(path.Base(name)) {
				p, ok = dir, true
			}
			if ok {
				found = p
				break
			}
		}
		if found == "" && !optional {
			return nil, false, nil
		}
		out = append(out, found)
	}
	return out, true, nil
}

// split finds CoOp's split file: of the name that CoOp gives it, or else the only split_zhou_*.json in the folder. A
// folder with split files of several sets is not searched.
func (f finder) split(dir, name string) (string, bool, error) {
	if name != "" {
		if p, ok, err := f.lookup(dir, name); ok || err != nil {
			return p, ok, err
		}
	}
	list, err := f.list(dir)
	if err != nil {
		return "", false, err
	}
	var found []string
	for _, e := range list {
		if n := strings.ToLower(e.Name()); strings.HasPrefix(n, "split_zhou_") && strings.HasSuffix(n, ".json") &&
			!e.IsDir() {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	if len(found) != 1 {
		return "", false, nil
	}
	return found[0], true, nil
}

// locate sets the folder that a split file's paths are relative to: the first of the candidates that has one of its
// first images.
func (l *roll) locate(f finder, dir string, dirs, images []string) error {
	l.root = dir
	var there, tried []string
	for _, d := range append([]string{dir}, dirs...) {
		for _, name := range append(slices.Clone(images), ".") {
			p, ok, err := f.lookup(d, name)
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
		for _, it := range l.items[:min(16, len(l.items))] {
			if _, err := os.Stat(filepath.Join(p, filepath.FromSlash(it.path))); err == nil {
				l.images = p
				return nil
			}
		}
	}
	return fmt.Errorf("%s lists %s, but it is not under %s: put the images where CoOp has them", l.list,
		l.items[0].path,
		strings.Join(append(tried, there...), ", nor under "))
}
