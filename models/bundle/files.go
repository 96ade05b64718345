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

// File is what is known of a file.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// Reading gives size and SHA-256 of files by reading them, and keeps them for the record in the user's cache.
type Reading map[string]known // by name

// known is a file in the record: File, as long as it has the path and the stamp.
type known struct {
	Path  string `json:"path"`  // absolute, links resolved
	Stamp string `json:"stamp"` // filestamp.Of
	File
}

// leastKept is the size, in bytes, from which files are kept in the record: reading a smaller one takes about as long
// as reading the record.
const leastKept = 1 << 20

// File reads the file name, with slashes, of a folder; ctx may end that early. A file that changes while it is read, or
// that may change without another stamp, is not kept.
func (r Reading) File(ctx context.Context, dir, name string) (File, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	settled := filestamp.Settled(before, time.Now())
	h := sha256.New()
	n, err := io.Copy(h, atomicfile.Reader{Context: ctx, R: f})
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	out := File{n, hex.EncodeToString(h.Sum(nil))}
	stamp := filestamp.Of(before)
	if after, err := f.Stat(); err == nil && settled && n >= leastKept && filestamp.Of(after) == stamp {
		r[name] = known{Stamp: stamp, File: out}
	}
	return out, nil
}

// Contents gives size and SHA-256 of files of a folder by their names, with slashes. It reads those that the record in
// the user's cache does not know as they are, or all.
func Contents(dir string, names []string, all bool) (map[string]File, error) {
	var old Reading
	if !all {
		old = recorded(dir)
	}
	out, read := map[string]File{}, Reading{}
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
	read.Keep(dir)
	return out, nil
}

// valid tells whether the file at a path is the one that is known.
func (k known) valid(path string) bool {
	st, err := os.Stat(path)
	if err != nil || filestamp.Of(st) != k.Stamp {
		return false
	}
	real, err := realPath(path)
	return err == nil && real == k.Path
}

// Verify compares files of a folder with what its bundle.json says of them: a size of 0 and an empty SHA256 say
// nothing. all is that of Contents, and remedy ends the error.
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
	have, err := Contents(dir, names, all)
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
