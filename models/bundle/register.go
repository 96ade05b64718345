package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

var registry = struct {
	sync.Mutex
	files map[string]fs.FS
}{files: map[string]fs.FS{}}

// Register makes Find know files by a name: a bundle or a checkpoint, at the top of files, compiled into the program.
// The first Find writes it to the user's cache. Registering a name twice panics, as it is a mistake in the program.
func Register(name string, files fs.FS) {
	registry.Lock()
	defer registry.Unlock()
	if _, twice := registry.files[name]; twice || checkName(name) != nil {
		panic(fmt.Sprintf("bundle: %q cannot be registered, or is already", name))
	}
	registry.files[name] = files
}

func registeredFiles(name string) fs.FS {
	registry.Lock()
	defer registry.Unlock()
	return registry.files[name]
}

func registeredEntries() []Entry {
	registry.Lock()
	defer registry.Unlock()
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(registry.files)) {
		out = append(out, Entry{Name: name})
	}
	return out
}

// materialise gives the bundle of registered files in the user's cache, at a path that holds the hash of their contents
// and the form of bundles. It is written beside its place and renamed, so of several processes doing this at once the
// first one wins and none sees half a bundle. What the cache holds is only used when its contents are right.
func materialise(name string, files fs.FS) (*Bundle, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	key, err := contentKey(files)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	dir := filepath.Join(cache, "embedded", key, name)
	if b, err := Open(dir); err == nil && b.Verify() == nil {
		return b, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	src, err := os.MkdirTemp(parent, partial+"source-")
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	defer os.RemoveAll(src)
	if err := copyFiles(files, src); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, explain(err))
	}
	fresh := src
	if !isBundle(src) {
		fresh = filepath.Join(src, "bundle")
		if _, err := Convert(src, fresh, Options{Name: name}); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(fresh, dir); err != nil {
		if b, err := Open(dir); err == nil && b.Verify() == nil {
			return b, nil // another process was faster
		}
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("bundle %s: %w", name, err)
		}
		if err := os.Rename(fresh, dir); err != nil {
			return nil, fmt.Errorf("bundle %s: %w", name, err)
		}
	}
	syncFolder(parent)
	return Open(dir)
}

// contentKey hashes names and contents of the files at the top of files.
func contentKey(files fs.FS) (string, error) {
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "form %d\n", manifestVersion)
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		f, err := files.Open(e.Name())
		if err != nil {
			return "", err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		f.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %x\n", e.Name(), one.Sum(nil))
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}
