package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// The file of a shard is a safetensors file with one tensor, of F16 or F32, and the shard's key in its metadata. Its
// SHA-256, 32 bytes, follows, since the format itself has no checksum.
const (
	rowsTensor = "rows"
	rowsKey    = "key"
)

// dtypeOf returns the stored type of a precision.
func dtypeOf(precision string) string {
	if precision == Float {
		return "F32"
	}
	return "F16"
}

// shard is a matrix in one file, read row by row. It is safe for concurrent use until it is closed.
type shard struct {
	safetensors.Info
	r     io.ReaderAt
	close io.Closer
}

// readRows checks the checksum, the key and the precision of a file of the given size.
func readRows(r io.ReaderAt, size int64, k Key, dtype string) (*shard, error) {
	end, want, sum := size-sha256.Size, make([]byte, sha256.Size), sha256.New()
	if end < 0 {
		return nil, errors.New("truncated")
	}
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, end)); err != nil {
		return nil, err
	}
	if _, err := r.ReadAt(want, end); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, errors.New("its checksum does not match")
	}
	f, err := safetensors.Parse(r, end)
	if err != nil {
		return nil, err
	}
	s := &shard{r: r}
	if s.Info, err = f.Info(rowsTensor); err != nil {
		return nil, err
	}
	if f.Metadata()[rowsKey] != hex.EncodeToString(k[:]) || s.DType != dtype || len(s.Shape) == 0 {
		return nil, errors.New("holds the features of another source, or in another precision")
	}
	return s, nil
}

// read reads a row into t, beginning at element at. raw is a buffer of the size of a row in the file.
func (s *shard) read(row int, t *tensor.Tensor, at int, raw []byte) error {
	if _, err := s.r.ReadAt(raw, s.Offset+int64(row)*int64(len(raw))); err != nil {
		return err
	}
	return safetensors.Decode(s.DType, raw, t, at)
}

// writer writes a shard into a temporary file and renames it at commit.
type writer struct {
	f     *os.File
	sum   hash.Hash
	out   *safetensors.Writer // to both
	path  string
	dtype string
	shape []int
	left  int // number of missing elements
}

// create starts a shard of the given shape; appends add the rows.
func (c Cache) create(path string, k Key, shape []int) (*writer, error) {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	w := &writer{sum: sha256.New(), path: path, dtype: dtypeOf(c.Precision), shape: shape, left: tensor.Size(shape)}
	if err == nil {
		w.f, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	}
	if err != nil {
		return nil, fmt.Errorf("feature cache: %w: choose another folder", err)
	}
	if w.out, err = startRows(io.MultiWriter(w.f, w.sum), k, shape, w.dtype); err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// startRows writes the header of a shard.
func startRows(w io.Writer, k Key, shape []int, dtype string) (*safetensors.Writer, error) {
	return safetensors.NewWriter(w, []safetensors.Entry{{Name: rowsTensor, DType: dtype, Shape: shape}},
		map[string]string{rowsKey: hex.EncodeToString(k[:])}, 8)
}

// append adds rows, as Matrix.Append does.
func (w *writer) append(rows *tensor.Tensor) error {
	if len(rows.Shape) != len(w.shape) || !slices.Equal(rows.Shape[1:], w.shape[1:]) || len(rows.Data) > w.left {
		return fmt.Errorf("feature cache: rows %v do not fit into the rest of %v", rows.Shape, w.shape)
	}
	if w.dtype == "F32" {
		if i := rows.NonFinite(); i >= 0 {
			return fmt.Errorf("feature cache: element %d of %v is %g", i, rows.Shape, rows.Data[i])
		}
	} else if err := RoundHalf(rows); err != nil {
		return fmt.Errorf("feature cache: %w", err)
	}
	w.left -= len(rows.Data)
	return w.out.Put(rowsTensor, rows)
}

// commit moves the finished shard to its path. Missing rows are an error, and then no file appears. The file is not
// flushed to the device: if the system crashes, a damaged file fails its checksum and is computed again.
func (w *writer) commit() error {
	err := w.out.Close()
	if err == nil {
		_, err = w.f.Write(w.sum.Sum(nil))
	}
	if err == nil {
		err = w.f.Close()
	}
	if err == nil {
		err = os.Rename(w.f.Name(), w.path)
	}
	if err != nil {
		w.abort()
		return fmt.Errorf("feature cache: cannot write %s: %w", w.path, err)
	}
	return nil
}

// abort removes the temporary file.
func (w *writer) abort() {
	w.f.Close()
	os.Remove(w.f.Name())
}
