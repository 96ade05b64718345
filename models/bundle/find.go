package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/runtime/convert"
)

var registered = map[string]func() (*Bundle, error){}

// Register adds a bundle that is part of the program to those that Find finds by name. It must be called before Find
// and List; registering a name twice panics, since it is a programming error.
func Register(name string, open func() (*Bundle, error)) {
	if registered[name] != nil || CheckName(name) != nil {
		panic(fmt.Sprintf("bundle: %q cannot be registered, or is already", name))
	}
	registered[name] = open
}

// ModelsVariable is the environment variable with a list of folders of bundles, separated as in PATH.
const ModelsVariable = "PROMPTFED_MODELS"

// ErrNotFound is the error of Find for a name that no bundle on this machine has.
var ErrNotFound = errors.New("no bundle")

// Find opens a bundle by the path of its folder, or by name. It searches a name in the folders inside each of paths, in
// the folders of PROMPTFED_MODELS, in ./bundles and in promptfed/bundles of the user's cache, first among folder names
// and then among the names in bundle.json; last among the registered bundles. A name with HubPrefix stands for the
// name of its folder; if no bundle has it, the error is ErrNotPulled. If no bundle has another name, it is ErrNotFound,
// with the searched folders and the available bundles.
func Find(name string, paths ...string) (*Bundle, error) {
	if name == "" {
		return nil, errors.New("no bundle named: give a name or the path of a folder")
	}

	if strings.HasPrefix(name, HubPrefix) {
		return findHub(name, paths)
	}

	if strings.Contains(name, "=") {
		spec, err := ParseSpec(name)
		if err != nil {
			return nil, err
		}
		if _, _, ok := formOf(spec.Folder); !ok && spec.Image == "" {
			b, err := Find(spec.Folder, paths...) // by name
			if err != nil {
				return nil, err
			}
			spec.Folder = b.Dir
		}
		return openSpec(spec)
	}

	if _, _, ok := formOf(name); ok || strings.ContainsAny(name, `/\`) {
		return Open(name)
	}

	dirs := SearchPath(paths...)
	if path, ok := inside(dirs, name); ok {
		return Open(path)
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

	known := convert.Slice(List(paths...), func(e Entry) string { return e.Name })
	return nil, fmt.Errorf("%w %q in %s; there is %s: give the path of a bundle, fetch one with promptfed pull, or "+
		"make one with promptfed convert and put it there", ErrNotFound, name, strings.Join(dirs, ", "),
		JoinOrNone(known))
}

// inside returns the first bundle with the name of a folder in dirs.
func inside(dirs []string, folder string) (path string, ok bool) {
	for _, dir := range dirs {
		path = filepath.Join(dir, folder)
		if _, _, ok := formOf(path); ok {
			return path, true
		}
	}
	return "", false
}

// findHub finds the bundle of a repository of the Hugging Face hub.
func findHub(name string, paths []string) (*Bundle, error) {
	hubName, err := ParseHubName(name)
	if err != nil {
		return nil, err
	}

	dirs := SearchPath(paths...)
	if path, ok := inside(dirs, hubName.Folder()); ok {
		return Open(path)
	}

	return nil, fmt.Errorf("%s is %w: promptfed pull %s fetches it (searched %s for %s)", name, ErrNotPulled,
		strings.TrimPrefix(name, HubPrefix), strings.Join(dirs, ", "), hubName.Folder())
}

// JoinOrNone joins names for a message.
func JoinOrNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Entry is a bundle that Find finds by name. Dir is empty for a registered one.
type Entry struct{ Name, Dir string }

// List returns the bundles that Find finds by name, sorted, each name once. It omits unreadable ones.
func List(paths ...string) []Entry {
	all := installed(SearchPath(paths...))
	for name := range registered {
		all = append(all, Entry{Name: name})
	}

	slices.SortStableFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Entry) bool { return a.Name == b.Name })
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

// SearchPath returns the folders in which Find searches names.
func SearchPath(paths ...string) []string {
	out := slices.Concat(paths, filepath.SplitList(os.Getenv(ModelsVariable)))
	out = append(slices.DeleteFunc(out, func(path string) bool { return path == "" }), "bundles")
	if cache, err := CacheDir(); err == nil {
		out = append(out, filepath.Join(cache, "bundles"))
	}

	return out
}

// CacheDir returns promptfed's folder in the user's cache.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for cached bundles (%w): set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(dir, "promptfed"), nil
}
