package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/filestamp"
)

// The record holds the hashes of files at the time they were read: one file in the user's cache for each folder of a
// bundle. Each begins with the SHA-256 of the rest, so a damaged record is ignored. If a record cannot be read or
// written, files are read again; this is not an error.

// Limits of the record. Above them, the oldest folders or all earlier files of a folder are removed.
const (
	maxFolders  = 512
	maxRecorded = 256
	maxRecord   = 1 << 20 // bytes of one folder
)

// recordOf returns the path of the record of a folder.
func recordOf(dir string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	real, err := filestamp.RealPath(dir)
	sum := sha256.Sum256([]byte(real))
	return filepath.Join(cache, "verified", hex.EncodeToString(sum[:16])), err
}

// recorded returns the recorded hashes of a folder.
func recorded(dir string) Hashes {
	path, err := recordOf(dir)
	if err != nil {
		return nil
	}

	data, err := atomicfile.ReadAtMost(path, maxRecord)
	if err != nil {
		return nil
	}

	return parseRecord(data)
}

func parseRecord(data []byte) (r Hashes) {
	_, rest, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.Equal(data, withSum(rest)) || json.Unmarshal(rest, &r) != nil {
		return nil
	}
	return r
}

func (r Hashes) bytes() ([]byte, error) {
	rest, err := json.Marshal(r)
	return withSum(rest), err
}

func withSum(rest []byte) []byte {
	sum := sha256.Sum256(rest)
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), rest...)
}

// Save adds the collected hashes to the record of the folder in which the files are now.
func (r Hashes) Save(dir string) {
	path, err := recordOf(dir)
	if len(r) == 0 || err != nil {
		return
	}

	all := maps.Clone(r)
	for name, k := range all {
		if k.Path, err = filestamp.RealPath(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return
		}
		all[name] = k
	}

	if old := recorded(dir); len(old)+len(all) <= maxRecorded {
		maps.DeleteFunc(old, func(name string, _ known) bool { _, again := all[name]; return again })
		maps.Copy(all, old)
	}

	data, err := all.bytes()
	if err != nil || len(data) > maxRecord || os.MkdirAll(filepath.Dir(path), 0o777) != nil {
		return
	}

	_ = atomicfile.Write(path, atomicfile.Bytes(data))
	forget(filepath.Dir(path))
}

// forget removes the oldest files of a folder with too many files.
func forget(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil || len(list) <= maxFolders {
		return
	}

	age := func(e os.DirEntry) (t time.Time) {
		if st, err := e.Info(); err == nil {
			t = st.ModTime()
		}
		return t
	}

	slices.SortFunc(list, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range list[:len(list)-maxFolders] {
		os.Remove(filepath.Join(dir, e.Name()))
	}
}
