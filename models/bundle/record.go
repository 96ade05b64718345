package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"promptfed/runtime/atomicfile"
)

// The record says which contents files had when they were read: a file in the user's cache for each folder of a bundle.
// It starts with the SHA-256 of the rest, so that a damaged one is not believed. What cannot be read or written costs
// time and is no error.

// Limits of the record, beyond which the oldest folders and all earlier files of one folder are forgotten.
const (
	maxFolders  = 512
	maxRecorded = 256
	maxRecord   = 1 << 20 // bytes of one folder
)

// recordOf is the file of the record for a folder.
func recordOf(dir string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	real, err := realPath(dir)
	sum := sha256.Sum256([]byte(real))
	return filepath.Join(cache, "verified", hex.EncodeToString(sum[:16])), err
}

func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}

// recorded is what the record has of a folder.
func recorded(dir string) Reading {
	path, err := recordOf(dir)
	if err != nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil || len(data) > maxRecord {
		return nil
	}
	return parseRecord(data)
}

func parseRecord(data []byte) (r Reading) {
	_, rest, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.Equal(data, withSum(rest)) || json.Unmarshal(rest, &r) != nil {
		return nil
	}
	return r
}

func (r Reading) bytes() ([]byte, error) {
	rest, err := json.Marshal(r)
	return withSum(rest), err
}

func withSum(rest []byte) []byte {
	sum := sha256.Sum256(rest)
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), rest...)
}

// Keep adds what was read to the record, for the folder in which the files lie now.
func (r Reading) Keep(dir string) {
	path, err := recordOf(dir)
	if len(r) == 0 || err != nil {
		return
	}
	all := maps.Clone(r)
	for name, k := range all {
		if k.Path, err = realPath(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
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

// forget removes the oldest files of a folder that has too many.
func forget(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil || len(list) <= maxFolders {
		return
	}
	age := map[string]time.Time{}
	for _, e := range list {
		if st, err := e.Info(); err == nil {
			age[e.Name()] = st.ModTime()
		}
	}
	names := slices.SortedFunc(maps.Keys(age), func(a, b string) int { return age[a].Compare(age[b]) })
	for _, name := range names[:max(0, len(names)-maxFolders)] {
		os.Remove(filepath.Join(dir, name))
	}
}
