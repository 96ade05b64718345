package source

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Finder finds files and folders whose names have several spellings; upper case and punctuation are ignored. It lists
// each folder once.
type Finder map[string][]fs.FileInfo

// NormalizeName returns the letters and digits of a name, in lower case.
func NormalizeName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

// SameName reports whether two names have the same letters and digits.
func SameName(a, b string) bool { return NormalizeName(a) == NormalizeName(b) }

// List returns the entries of a folder.
func (f Finder) List(dir string) ([]fs.FileInfo, error) {
	if l, ok := f[dir]; ok {
		return l, nil
	}

	l, err := Entries(dir)
	if err == nil {
		f[dir] = l
	}

	return l, err
}

// Lookup finds a path with forward slashes under dir, or returns "". An exact name takes precedence.
func (f Finder) Lookup(dir, name string) (string, error) {
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		next := filepath.Join(dir, part)
		if _, err := os.Stat(next); err != nil {
			if !IsFolder(dir) {
				return "", nil
			}
			list, err := f.List(dir)
			i := slices.IndexFunc(list, func(e fs.FileInfo) bool { return SameName(e.Name(), part) })
			if err != nil || i < 0 {
				return "", err
			}
			next = filepath.Join(dir, list[i].Name())
		}
		dir = next
	}

	return dir, nil
}

// First returns the first of the names, as a folder or as a file, in the first of the folders that has one of them, or
// "".
func (f Finder) First(folder bool, dirs []string, names ...string) (string, error) {
	for _, dir := range dirs {
		for _, name := range names {
			found, err := f.Lookup(dir, name)
			if err != nil {
				return "", err
			}
			if st, err := os.Stat(found); err == nil && st.IsDir() == folder {
				return found, nil
			}
		}
	}

	return "", nil
}

// Candidates returns root and the folders under it that have one of the names; a name may contain slashes.
func (f Finder) Candidates(root string, names ...string) ([]string, error) {
	if _, err := f.List(root); err != nil {
		return nil, err
	}

	out := []string{root}
	for _, name := range names {
		found, err := f.First(true, []string{root}, name)
		if err != nil {
			return nil, err
		}
		if found != "" && !slices.Contains(out, found) {
			out = append(out, found)
		}
	}

	return out, nil
}

// All finds all paths that a layout needs, or returns nil. If it needs only a folder of images, dir itself may be this
// folder.
func (f Finder) All(dir string, needs []string) ([]string, error) {
	var out []string
	for i, need := range needs {
		need, optional := strings.CutPrefix(need, "?")
		found := ""
		for _, name := range strings.Split(need, "|") {
			var err error
			if found, err = f.Lookup(dir, name); err != nil {
				return nil, err
			}
			if found == "" && i == 0 && len(needs) == 1 && SameName(filepath.Base(dir), path.Base(name)) {
				found = dir
			}
			if found != "" {
				break
			}
		}

		if found == "" && !optional {
			return nil, nil
		}

		out = append(out, found)
	}

	return out, nil
}

// Split finds CoOp's split file: by CoOp's name, or else as the only split_zhou_*.json in the folder. A folder with
// split files of several sets has none.
func (f Finder) Split(dir, name string) (string, error) {
	if name != "" {
		if p, err := f.Lookup(dir, name); p != "" || err != nil {
			return p, err
		}
	}

	list, err := f.List(dir)
	var found []string
	for _, e := range list {
		if n := strings.ToLower(e.Name()); strings.HasPrefix(n, "split_zhou_") && strings.HasSuffix(n, ".json") &&
			!e.IsDir() {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}

	if len(found) != 1 {
		return "", err
	}

	return found[0], err
}
