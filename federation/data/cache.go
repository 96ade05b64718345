package data

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/x448/float16"
	"golang.org/x/exp/mmap"

	"promptfed/runtime/tensor"
)

// Source holds everything that a matrix of features depends on.
type Source struct {
	Bundle        string        // digest of the bundle that computed the features
	Images        []ContentHash // one for each row or block of rows
	Names         []string      // of the images, if View is not 0: the random draws of an augmented view depend on them
	Preprocessing string        // how pixels were made, with all numbers
	View          int           // 0 for the plain view, otherwise the number of the augmented view
	Seed          uint64        // of the augmented views
	Layer         string        // image, patches, tokens or pixels
	Precision     string        // of the rows: empty or Half, or Float
	Batch         int           // images that pass through the tower together
	Numerics      string        // numerics.Fingerprint: everything else that may change a bit
	Shard         int           // rows of a shard, if they are more than usual
}

// Precision of the rows of a matrix.
const (
	Half  = "half"  // rounded to IEEE 754 half precision, two bytes a number
	Float = "float" // float32 as computed
)

// Key identifies a matrix in the cache.
type Key [sha256.Size]byte

// Key hashes the source.
func (s Source) Key() Key {
	sum, batch := sha256.New(), fmt.Sprint(s.Batch)
	if s.Shard > 0 {
		batch += fmt.Sprint(" in shards of ", s.Shard)
	}

	for _, f := range []string{"features 4", s.Bundle, s.Preprocessing, fmt.Sprint(s.View), fmt.Sprint(s.Seed), s.Layer,
		cmp.Or(s.Precision, Half), batch, s.Numerics, fmt.Sprint(len(s.Images))} {
		field(sum, f)
	}

	for _, c := range s.Images {
		sum.Write(c[:])
	}

	for _, name := range s.Names {
		field(sum, name)
	}

	return Key(sum.Sum(nil))
}

// Cache is a folder of feature matrices, stored in shards. Several processes may use one folder: a file appears whole
// or not at all, and the last writer replaces a file with an equal one.
//
// Rows that are read back in half precision are rounded. Therefore computed rows are rounded before their first use too
// (Matrix.Append), and a run does not depend on what the cache held. With Float, rows are stored as computed, bit for
// bit.
type Cache struct {
	Dir       string
	Precision string // empty is Half; matrices of another precision are not read
	// Damaged, which may be nil, is called with each file that is truncated or altered. Such a file counts as absent,
	// and is replaced when it is written again.
	Damaged func(path string, why error)
}

// unusable is the error of a file in the cache that cannot be read or written.
func unusable(err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("feature cache: %w: a process may map vm.max_map_count files: lower data.views", err)
	}
	return fmt.Errorf("feature cache: %w: free space there, or set runtime.cache to another folder", err)
}

// folder returns the folder of the shards of a matrix.
func (c Cache) folder(k Key) string {
	name := hex.EncodeToString(k[:])
	return filepath.Join(c.Dir, name[:2], name)
}

func (c Cache) path(k Key, shard int) string {
	return filepath.Join(c.folder(k), fmt.Sprintf("%06d.rows", shard))
}

// shard returns the key that is written in the file of a shard.
func (k Key) shard(i int) Key {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(k[:], uint64(i)))
}

// mapped is a file in memory. Where the file was cut off after it was opened, a read is an error.
type mapped struct {
	*mmap.ReaderAt
	path string
}

func (m mapped) ReadAt(p []byte, off int64) (n int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%s was cut off during the run, or its disk failed; start the run again", m.path)
		}
	}()

	return m.ReaderAt.ReadAt(p, off)
}

// open maps a shard into memory and verifies its checksum once. It returns nil if the shard is absent or damaged, or
// has another shape.
func (c Cache) open(path string, k Key, shape []int) (*shard, error) {
	file, err := mmap.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, unusable(err)
	}

	s, err := readRows(mapped{file, path}, int64(file.Len()), k, dtypeOf(c.Precision))
	if err == nil && !slices.Equal(s.Shape, shape) {
		err = fmt.Errorf("holds rows %v instead of %v", s.Shape, shape)
	}

	if err == nil {
		s.close = file
		return s, nil
	}

	file.Close()
	if c.Damaged != nil {
		c.Damaged(path, err)
	}

	return nil, nil
}

// RoundHalf rounds every element to the nearest half-precision number, ties to even. An element that is not finite, or
// is 65,520 or more in size and so would become infinite, is an error that names its index, and t is unchanged.
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
