package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

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

// write writes the file of a shard, which appears whole or not at all. The file is not flushed to the device: if the
// system crashes, a damaged file fails its checksum and is computed again.
func (c Cache) write(path string, k Key, rows *tensor.Tensor) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sweep(dir)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	defer f.Close()
	sum := sha256.New()
	out, err := startRows(io.MultiWriter(f, sum), k, rows.Shape, dtypeOf(c.Precision))
	if err == nil {
		err = errors.Join(out.Put(rowsTensor, rows), out.Close())
	}
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// startRows writes the header of a shard.
func startRows(w io.Writer, k Key, shape []int, dtype string) (*safetensors.Writer, error) {
	return safetensors.NewWriter(w, []safetensors.Entry{{Name: rowsTensor, DType: dtype, Shape: shape}},
		map[string]string{rowsKey: hex.EncodeToString(k[:])}, 8)
}
