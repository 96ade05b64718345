package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var registered = map[string]func() (*Bundle, error){}

// Register makes Find know a bundle by a name that is part of the program. Registering a name twice panics, as it is a
// mistake in the program. It is called before Find and List.
func Register(name string, open func() (*Bundle, error)) {
	if registered[name] != nil || CheckName(name) != nil {
		panic(fmt.Sprintf("bundle: %q cannot be registered, or is already", name))
	}
	registered[name] = open
}

// ModelsVariable is the environment variable that lists folders of bundles, separated as in PATH.
const ModelsVariable = "PROMPTFED_MODELS"

// Find opens a bundle by the path of its folder, or by name. A name is looked for among the folders inside each of
// paths, the folders of PROMPTFED_MODELS, ./bundles and promptfed/bundles of the user's cache, first by folder and then
// by what bundle.json says; then among the registered bundles. The error lists what was searched and what there is.
func Find(name string, paths ...string) (*Bundle, error) {
	if name == "" {
		return nil, errors.New("no bundle named: give a name or the path of a folder")
	}
	if strings.Contains(name, "=") {
		s, err := ParseSpec(name)
		if err != nil {
			return nil, err
		}
		if _, _, ok := formOf(s.Folder); !ok && s.Image == "" {
			b, err := Find(s.Folder, paths...) // by name
			if err != nil {
				return nil, err
			}
			s.Folder = b.Dir
		}
		return openSpec(s)
	}
	if _, _, ok := formOf(name); ok || strings.ContainsAny(name, `/\`) {
		return Open(name)
	}
	dirs := SearchPath(paths...)
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, _, ok := formOf(path); ok {
			return Open(path)
		}
	}
	for _, e := range installed(dirs) {
		if e.Name == name {
			return Open(e.Dir)
		}
	}
	if open := registered[name]; open != nil {
		b, err := open()
		if err == nil {
			b.Registered = true
		}
		return b, err
	}
	var known []string
	for _, e := range List(paths...) {
		known = append(known, e.Name)
	}
	return nil, fmt.Errorf("no bundle %q in %s; there is %s: give the path of a bundle, or make one with promptfed "+
		"convert and put it there",
		name, strings.Join(dirs, ", "), OrNone(known))
}

// OrNone lists names for a message.
func OrNone(names []string) string {
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
	all := installed(SearchPath(paths...))
	for name := range registered {
		all = append(all, Entry{Name: name})
	}
	for _, e := range all {
		if !slices.ContainsFunc(out, func(o Entry) bool { return o.Name == e.Name }) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// installed lists the bundles in folders inside dirs.
func installed(dirs []string) []Entry {
	var out []Entry
	for _, dir := range dirs {
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			if _, name, ok := formOf(path); ok && name != "" && !strings.HasPrefix(e.Name(), ".") {
				out = append(out, Entry{name, path})
			}
		}
	}
	return out
}

// SearchPath are the folders that Find looks for names in.
func SearchPath(paths ...string) []string {
	var out []string
	for _, p := range append(slices.Clone(paths), filepath.SplitList(os.Getenv(ModelsVariable))...) {
		if p != "" {
			out = append(out, p)
		}
	}
	out = append(out, "bundles")
	if cache, err := CacheDir(); err == nil {
		out = append(out, filepath.Join(cache, "bundles"))
	}
	return out
}

// CacheDir is promptfed's folder in the user's cache.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for cached bundles (%w): set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(dir, "promptfed"), nil
}
