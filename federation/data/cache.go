package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/x448/float16"
	"golang.org/x/exp/mmap"

	"promptfed/runtime/tensor"
)

// Source is everything that a matrix of features depends on.
type Source struct {
	Bundle        string // digest of the bundle that computed them
	Files         string // Digest of the examples, one row (or block of rows) each
	Preprocessing string // how pixels were made, with all numbers
	View          int    // 0 for the plain view, otherwise the number of the augmented view
	Seed          uint64 // of the augmented views
	Layer         string // image or patches
	Precision     string // of the rows: empty or Half, or Float
}

// Precision of the rows of a matrix.
const (
	Half  = "half"  // rounded to IEEE 754 half precision, two bytes a number
	Float = "float" // float32 as computed
)

// Key names a matrix in the cache.
type Key [sha256.Size]byte

// Key hashes the source.
func (s Source) Key() Key {
	h := sha256.New()
	for _, f := range []string{"features 1", s.Bundle, s.Files, s.Preprocessing, fmt.Sprint(s.View), fmt.Sprint(s.Seed),
		s.Layer} {
		field(h, f)
	}
	if s.Precision != "" && s.Precision != Half {
		field(h, s.Precision)
	}
	return Key(h.Sum(nil))
}

// Cache is a folder of feature matrices. Several processes may use one folder: a file appears whole or not at all, and
// whoever comes last replaces a file by its equal.
//
// What is read back in half precision has been rounded, so everything computed is rounded before its first use too
// (Writer.Append): a run does not depend on what the cache held. In Float it is what was computed, bit for bit.
type Cache struct {
	Dir       string
	Precision string // empty is Half; a matrix of another precision is none
	// Damaged, which may be nil, is told about files that are truncated or altered. They count as absent, and are
	// replaced when they are written again.
	Damaged func(path string, why error)
}

func (c Cache) path(k Key) string {
	name := hex.EncodeToString(k[:])
	return filepath.Join(c.Dir, name[:2], name+".rows")
}

// Open maps a matrix into memory and verifies its checksum once; false when it is absent or damaged. Close the rows
// when done.
func (c Cache) Open(k Key) (*Rows, bool, error) {
	path := c.path(k)
	f, err := mmap.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("feature cache: %w", err)
	}
	r, err := readRows(f, int64(f.Len()), k, formatOf(c.Precision))
	var bad damaged
	if errors.As(err, &bad) {
		f.Close()
		if c.Damaged != nil {
			c.Damaged(path, err)
		}
		return nil, false, nil
	}
	if err != nil {
		f.Close()
		return nil, false, fmt.Errorf("feature cache: %s: %w", path, err)
	}
	r.close = f
	return r, true, nil
}

// Create starts a matrix of the given shape, whose rows follow in any number of Appends.
func (c Cache) Create(k Key, shape []int) (*Writer, error) {
	path := c.path(k)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("feature cache: %w: choose another folder", err)
	}
	sweep(path)
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("feature cache: %w: choose another folder", err)
	}
	w, err := newWriter(f, path, k, shape, formatOf(c.Precision))
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	return w, nil
}

// sweep removes what processes that were killed more than a day ago left half written.
func sweep(path string) {
	old, _ := filepath.Glob(path + ".*.tmp")
	for _, p := range old {
		if st, err := os.Stat(p); err == nil && time.Since(st.ModTime()) > 24*time.Hour {
			os.Remove(p)
		}
	}
}

// RoundHalf rounds every element to the nearest half-precision number, ties to even. An element that is not finite, or
// is 65,520 or more in size and so would become infinite, is an error that names its index, and t stays as it was.
func RoundHalf(t *tensor.Tensor) error {
	for i, v := range t.Data {
		if h := float16.Fromfloat32(v); h.IsNaN() || h.IsInf(0) {
			return fmt.Errorf("element %d of %v is %g, which half precision cannot hold", i, t.Shape, v)
		}
	}
	for i, v := range t.Data {
		t.Data[i] = float16.Fromfloat32(v).Float32()
	}
	return nil
}
