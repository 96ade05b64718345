package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Matrix is a matrix of features in shards of the cache: files of a fixed number of rows, which appear whole or not at
// all. Shards that a stopped process has computed are kept, and the next process continues with the missing rows.
// Reading is safe for concurrent use; writing is not.
type Matrix struct {
	Shape  []int
	cache  Cache
	key    Key
	per    int       // rows of a shard; the last one may have fewer
	shards []*shard  // nil if missing
	next   []float32 // the first rows of the first missing shard
}

// Matrix opens a matrix in shards of per rows, with all shards that exist. The caller closes it.
func (c Cache) Matrix(k Key, shape []int, per int) (*Matrix, error) {
	if len(shape) < 1 || slices.Min(shape) < 0 || per < 1 {
		return nil, fmt.Errorf("feature cache: shape %v in shards of %d rows: at least one dimension and shards of "+
			"at least 1 row are needed", shape, per)
	}

	m := &Matrix{Shape: slices.Clone(shape), cache: c, key: k, per: per}
	m.shards = make([]*shard, (shape[0]+per-1)/per)
	for i := range m.shards {
		var err error
		if m.shards[i], err = c.open(c.path(k, i), k.shard(i), m.shapeOf(i)); err != nil {
			m.Close()
			return nil, err
		}
	}

	return m, nil
}

// rowsOf and shapeOf return the number of rows and the shape of a shard.
func (m *Matrix) rowsOf(i int) int { return min(m.per, m.Shape[0]-i*m.per) }

func (m *Matrix) shapeOf(i int) []int { return append([]int{m.rowsOf(i)}, m.Shape[1:]...) }

// Missing returns the maximal ranges of rows [from,to) that no shard holds.
func (m *Matrix) Missing() (ranges [][2]int) {
	for i, s := range m.shards {
		from, to := i*m.per, i*m.per+m.rowsOf(i)
		switch last := len(ranges) - 1; {
		case s != nil:
		case last >= 0 && ranges[last][1] == from:
			ranges[last][1] = to
		default:
			ranges = append(ranges, [2]int{from, to})
		}
	}

	return ranges
}

// Append adds the next of the missing rows. It rounds them to the cache's precision in place, so use them after this
// call, not before. Elements must be finite, also in half precision. A shard appears in the cache with its last row.
func (m *Matrix) Append(rows *tensor.Tensor) error {
	left := 0
	for i, s := range m.shards {
		if s == nil {
			left += m.rowsOf(i)
		}
	}

	switch {
	case left == 0:
		return fmt.Errorf("feature cache: rows %v do not fit: %v is complete", rows.Shape, m.Shape)
	case len(rows.Shape) != len(m.Shape) || !slices.Equal(rows.Shape[1:], m.Shape[1:]) ||
		len(m.next)+len(rows.Data) > left*tensor.Size(m.Shape[1:]):
		return fmt.Errorf("feature cache: rows %v do not fit into the %d that %v lacks", rows.Shape, left, m.Shape)
	}

	if m.cache.Precision == Float {
		if i := rows.NonFinite(); i >= 0 {
			return fmt.Errorf("feature cache: element %d of %v is %g", i, rows.Shape, rows.Data[i])
		}
	} else if err := RoundHalf(rows); err != nil {
		return fmt.Errorf("feature cache: %w", err)
	}

	for more := rows.Data; len(more) > 0; {
		i := slices.Index(m.shards, nil)
		size := tensor.Size(m.shapeOf(i))
		n := min(len(more), size-len(m.next))
		m.next, more = append(slices.Grow(m.next, size-len(m.next)), more[:n]...), more[n:]
		if len(m.next) < size {
			return nil
		}
		if err := m.finish(i); err != nil {
			return err
		}
	}

	return nil
}

// finish writes a shard, whose rows are complete, and opens it.
func (m *Matrix) finish(i int) (err error) {
	path, key, whole := m.cache.path(m.key, i), m.key.shard(i), tensor.Of(m.next, m.shapeOf(i)...)
	m.next = nil
	if err := m.cache.write(path, key, whole); err != nil {
		return unusable(err)
	}

	if m.shards[i], err = m.cache.open(path, key, whole.Shape); err == nil && m.shards[i] == nil {
		err = fmt.Errorf("feature cache: %s was written but cannot be read back", path)
	}

	return err
}

// Read returns the rows of the indices, in that order, as [len(index), Shape[1:]...]. A row that does not exist is an
// error.
func (m *Matrix) Read(index []int) (*tensor.Tensor, error) {
	width := tensor.Size(m.Shape[1:])
	out := tensor.Reuse(append([]int{len(index)}, m.Shape[1:]...)...)
	read := func(from, to int) error {
		raw := make([]byte, safetensors.ElementSize(dtypeOf(m.cache.Precision))*width)
		for k, i := range index[from:to] {
			if i < 0 || i >= m.Shape[0] || m.shards[i/m.per] == nil {
				return fmt.Errorf("feature cache: no row %d in a matrix %v", i, m.Shape)
			}
			if err := m.shards[i/m.per].read(i%m.per, out, (from+k)*width, raw); err != nil {
				return fmt.Errorf("feature cache: row %d: %w", i, err)
			}
		}
		return nil
	}

	rows := max(1, tensor.Part/max(1, width)) // of a part, which a core reads
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(index); from += rows {
		all.Go(func() error { return read(from, min(from+rows, len(index))) })
	}

	if err := all.Wait(); err != nil {
		return nil, err
	}

	return out, nil
}

// Close closes the files.
func (m *Matrix) Close() error {
	var errs []error
	for _, s := range m.shards {
		if s != nil {
			errs = append(errs, s.close.Close())
		}
	}
	return errors.Join(errs...)
}

// MissingBytes returns how many bytes the missing shards will take. It looks only at file sizes.
func (c Cache) MissingBytes(k Key, shape []int, per int) int64 {
	m, total := &Matrix{Shape: shape, per: per}, int64(0)
	for i := range (shape[0] + per - 1) / per {
		w, err := startRows(io.Discard, k.shard(i), m.shapeOf(i), dtypeOf(c.Precision))
		if err != nil { // Matrix refuses the shape
			continue
		}
		rows := w.Infos()[0]
		size := rows.Offset + rows.Length + sha256.Size
		if st, err := os.Stat(c.path(k, i)); err != nil || st.Size() != size {
			total += size
		}
	}

	return total
}

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
func readRows(file io.ReaderAt, size int64, key Key, dtype string) (*shard, error) {
	end, want, sum := size-sha256.Size, make([]byte, sha256.Size), sha256.New()
	if end < 0 {
		return nil, errors.New("truncated")
	}

	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, end)); err != nil {
		return nil, err
	}

	if _, err := file.ReadAt(want, end); err != nil {
		return nil, err
	}

	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, errors.New("its checksum does not match")
	}

	f, err := safetensors.Parse(file, end)
	if err != nil {
		return nil, err
	}

	s := &shard{r: file}
	if s.Info, err = f.Info(rowsTensor); err != nil {
		return nil, err
	}

	if f.Metadata()[rowsKey] != hex.EncodeToString(key[:]) || s.DType != dtype || len(s.Shape) == 0 {
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
func (c Cache) write(path string, key Key, rows *tensor.Tensor) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	atomicfile.Sweep(dir, atomicfile.Abandoned, "*.tmp")
	return atomicfile.WriteUnsynced(path, func(file io.Writer) error {
		sum := sha256.New()
		out, err := startRows(io.MultiWriter(file, sum), key, rows.Shape, dtypeOf(c.Precision))
		if err == nil {
			err = errors.Join(out.Put(rowsTensor, rows), out.Close())
		}
		if err == nil {
			_, err = file.Write(sum.Sum(nil))
		}
		return err
	})
}

// startRows writes the header of a shard.
func startRows(w io.Writer, k Key, shape []int, dtype string) (*safetensors.Writer, error) {
	return safetensors.NewWriter(w, []safetensors.Entry{{Name: rowsTensor, DType: dtype, Shape: shape}},
		map[string]string{rowsKey: hex.EncodeToString(k[:])}, 8)
}
