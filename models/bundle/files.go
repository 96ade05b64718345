package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/filestamp"
)

// File holds the size and the hash of a file.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// Hashes computes sizes and hashes of files, and collects them for the record in the user's cache.
type Hashes map[string]known // by name

// known is a file in the record. Its File is valid while the path and the stamp are the same.
type known struct {
	Path  string `json:"path"`  // absolute, links resolved
	Stamp string `json:"stamp"` // filestamp.Of
	File
}

// leastKept is the minimal size, in bytes, of files in the record: reading a smaller file takes about as long as
// reading the record.
const leastKept = 1 << 20

// File reads the file name, with slashes, of a folder; ctx can cancel the reading. A file that changes during the
// reading, or could change without a new stamp, is not collected.
func (r Hashes) File(ctx context.Context, dir, name string) (File, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	file, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer file.Close()

	before, err := file.Stat()
	if err != nil {
		return File{}, err
	}

	settled := filestamp.Settled(before, time.Now())
	h := sha256.New()
	n, err := io.Copy(h, atomicfile.Reader{Context: ctx, R: file})
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}

	out := File{n, hex.EncodeToString(h.Sum(nil))}
	stamp := filestamp.Of(before)
	if after, err := file.Stat(); err == nil && settled && n >= leastKept && filestamp.Of(after) == stamp {
		r[name] = known{Stamp: stamp, File: out}
	}

	return out, nil
}

// HashFiles returns size and SHA-256 of files in a folder, by name with slashes. It reads all files, or only those that
// the record in the user's cache does not list with their present stamp.
func HashFiles(dir string, names []string, all bool) (map[string]File, error) {
	var old Hashes
	if !all {
		old = recorded(dir)
	}

	out, read := map[string]File{}, Hashes{}
	for _, name := range names {
		if k, ok := old[name]; ok && k.valid(filepath.Join(dir, filepath.FromSlash(name))) {
			out[name] = k.File
			continue
		}
		f, err := read.File(context.Background(), dir, name)
		if err != nil {
			return nil, err
		}
		out[name] = f
	}

	read.Save(dir)
	return out, nil
}

// valid reports whether the file at a path is the known one.
func (k known) valid(path string) bool {
	st, err := os.Stat(path)
	if err != nil || filestamp.Of(st) != k.Stamp {
		return false
	}
	real, err := filestamp.RealPath(path)
	return err == nil && real == k.Path
}

// Verify compares files of a folder with the sizes and hashes in its bundle.json; a size of 0 and an empty SHA256 are
// not compared. all is the argument of HashFiles, and remedy ends the error.
func Verify(dir string, want map[string]File, all bool, remedy string) error {
	names := slices.Sorted(maps.Keys(want))
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is missing, but %s lists it: %s", path, ManifestFile, remedy)
		case err != nil:
			return err
		case !st.Mode().IsRegular():
			return fmt.Errorf("%s is not a file", path)
		case want[name].Size != 0 && st.Size() != want[name].Size:
			return fmt.Errorf("%s has %d bytes, %s says %d: the file is cut short or was changed; %s", path, st.Size(),
				ManifestFile, want[name].Size, remedy)
		}
	}

	names = slices.DeleteFunc(names, func(name string) bool { return want[name].SHA256 == "" })
	have, err := HashFiles(dir, names, all)
	if err != nil {
		return err
	}

	for _, name := range names {
		if f := have[name]; f.SHA256 != want[name].SHA256 {
			return fmt.Errorf("%s: SHA-256 %.12s of %d bytes, %s says %.12s: the file was changed or damaged; %s",
				filepath.Join(dir, filepath.FromSlash(name)), f.SHA256, f.Size, ManifestFile, want[name].SHA256, remedy)
		}
	}

	return nil
}
