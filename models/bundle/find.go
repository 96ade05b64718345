package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ModelsVariable is the environment variable that lists folders of bundles, separated as in PATH.
const ModelsVariable = "PROMPTFED_MODELS"

// Find opens a bundle by the path of its folder, or by name. A name is looked for among the folders inside each of
// paths, the folders of PROMPTFED_MODELS, ./bundles and promptfed/bundles of the user's cache, first by folder and then
// by what bundle.json says; then among the registered bundles. The error lists what was searched and what there is.
func Find(name string, paths ...string) (*Bundle, error) {
	if name == "" {
		return nil, errors.New("no bundle named: give a name or the path of a folder")
	}
	if strings.ContainsAny(name, `/\`) || isBundle(name) {
		return Open(name)
	}
	dirs := searchPath(paths)
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); isBundle(path) {
			return Open(path)
		}
	}
	for _, e := range installed(dirs) {
		if e.Name == name {
			return Open(e.Dir)
		}
	}
	if files := registeredFiles(name); files != nil {
		return materialise(name, files)
	}
	var known []string
	for _, e := range List(paths...) {
		known = append(known, e.Name)
	}
	return nil, fmt.Errorf("no bundle %q in %s; there is %s: give the path of a bundle, or make one with promptfed "+
		"convert and put it there",
		name, strings.Join(dirs, ", "), orNothing(known))
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Entry is a bundle that Find knows by name. Dir is empty for a registered one.
type Entry struct{ Name, Dir string }

// List gives the bundles that Find knows by name, sorted, each name once. What cannot be read is left out.
func List(paths ...string) []Entry {
	var out []Entry
	for _, e := range append(installed(searchPath(paths)), registeredEntries()...) {
		if !slices.ContainsFunc(out, func(o Entry) bool { return o.Name == e.Name }) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// installed reads the bundle.json of every folder inside dirs.
func installed(dirs []string) []Entry {
	var out []Entry
	for _, dir := range dirs {
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			if strings.HasPrefix(e.Name(), ".") || !isBundle(path) {
				continue
			}
			if name := nameOf(path); name != "" {
				out = append(out, Entry{name, path})
			}
		}
	}
	return out
}

// nameOf is the name that bundle.json gives, or the folder's where a person wrote it without one; "" if it cannot be
// read.
func nameOf(dir string) string {
	data, err := readManifestFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return ""
	}
	if isHandWritten(data) {
		h, err := parseHandWritten(data)
		if err != nil {
			return ""
		}
		return orElse(h.Name, filepath.Base(dir))
	}
	m, err := parseManifest(data)
	if err != nil {
		return ""
	}
	return m.Name
}

func isBundle(dir string) bool {
	st, err := os.Stat(filepath.Join(dir, ManifestFile))
	return err == nil && st.Mode().IsRegular()
}

func searchPath(paths []string) []string {
	var out []string
	for _, p := range append(slices.Clone(paths), filepath.SplitList(os.Getenv(ModelsVariable))...) {
		if p != "" {
			out = append(out, p)
		}
	}
	out = append(out, "bundles")
	if cache, err := cacheDir(); err == nil {
		out = append(out, filepath.Join(cache, "bundles"))
	}
	return out
}

// cacheDir is promptfed's folder in the user's cache.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for cached bundles (%w): set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(dir, "promptfed"), nil
}

// copyFiles writes the files at the top of files into dir.
func copyFiles(files fs.FS, dir string) error {
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		in, err := files.Open(e.Name())
		if err != nil {
			return err
		}
		err = fill(filepath.Join(dir, e.Name()), func(w io.Writer) error {
			_, err := io.Copy(w, in)
			return err
		})
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
