package converted

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/models/bundle"
	"promptfed/runtime/atomicfile"
)

// Embed registers a checkpoint, at the top of files, that is compiled into the program (bundle.Register). The first
// call of bundle.Find converts it into the user's cache.
func Embed(name string, files fs.FS) {
	bundle.Register(name, func() (*bundle.Bundle, error) { return materialise(name, files) })
}

// materialise returns the bundle of an embedded checkpoint in the user's cache, under a path that contains the hash of
// its contents and the version of bundles. It is written beside this path and renamed: if several processes do this at
// the same time, the first one wins, and none reads an incomplete bundle. A cached bundle is used only if its contents
// are right.
func materialise(name string, files fs.FS) (b *bundle.Bundle, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bundle %s: %w", name, err)
		}
	}()

	cache, err := bundle.CacheDir()
	if err != nil {
		return nil, err
	}

	key, err := contentKey(files)
	if err != nil {
		return nil, err
	}

	dir := filepath.Join(cache, "embedded", key, name)
	if b, err := open(dir, nil); err == nil {
		return b, nil
	}

	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, err
	}

	src, err := os.MkdirTemp(parent, atomicfile.PartialPrefix+"source-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(src)

	if err := os.CopyFS(src, files); err != nil {
		return nil, explain(err)
	}

	fresh := filepath.Join(src, name)
	if _, err := Convert(src, fresh, Options{}); err != nil {
		return nil, err
	}

	if err := os.Rename(fresh, dir); err != nil {
		if b, err := open(dir, nil); err == nil {
			return b, nil // another process was faster
		}
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.Rename(fresh, dir); err != nil {
			return nil, err
		}
	}

	atomicfile.SyncFolder(parent)
	return open(dir, nil)
}

// contentKey returns a hash of the names and contents of the files at the top of files.
func contentKey(files fs.FS) (string, error) {
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return "", err
	}

	hash := sha256.New()
	fmt.Fprintf(hash, "form %d\n", bundle.Version)
	for _, entry := range list {
		if entry.IsDir() {
			continue
		}

		f, err := files.Open(entry.Name())
		if err != nil {
			return "", err
		}

		one := sha256.New()
		_, err = io.Copy(one, f)
		f.Close()
		if err != nil {
			return "", err
		}

		fmt.Fprintf(hash, "%q %x\n", entry.Name(), one.Sum(nil))
	}

	return hex.EncodeToString(hash.Sum(nil)[:12]), nil
}
