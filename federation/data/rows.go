package data

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"

	"github.com/x448/float16"

	"promptfed/runtime/tensor"
)

// The file of a shard, little-endian:
//
//	8 bytes   "pfrows1\n" or, of float32 elements, "pfrows4\n"
//	32 bytes  the key
//	8 bytes   rank R, 1 to 8
//	8R bytes  shape
//	2N bytes  the N = product of shape elements, IEEE 754 half precision, row by row; 4N bytes of float32
//	32 bytes  SHA-256 of everything before
//
// safetensors would do for the rows, but has no checksum, and a file cut short at a row would go unnoticed.
const (
	rowsMagic  = "pfrows1\n"
	floatMagic = "pfrows4\n"
)

// format is how elements are stored.
type format struct {
	magic string
	bytes int
}

func formatOf(precision string) format {
	if precision == Float {
		return format{floatMagic, 4}
	}
	return format{rowsMagic, 2}
}

// put appends numbers as they are stored.
func (f format) put(raw []byte, v []float32) []byte {
	for _, x := range v {
		if f.bytes == 4 {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		} else {
			raw = binary.LittleEndian.AppendUint16(raw, float16.Fromfloat32(x).Bits())
		}
	}
	return raw
}

// get reads what put wrote.
func (f format) get(to []float32, raw []byte) {
	for i := range to {
		if f.bytes == 4 {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		} else {
			to[i] = float16.Frombits(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		}
	}
}

const maxRank = 8

// damaged is the error of a file that does not hold what it should.
type damaged struct{ why string }

func (d damaged) Error() string { return d.why }

// shard is a matrix in one file, read row by row; safe for concurrent use until it is closed.
type shard struct {
	shape []int
	f     format
	r     io.ReaderAt
	at    int64 // of the first element
	close io.Closer
}

// readRows checks header, size and checksum of a file of the given size.
func readRows(r io.ReaderAt, size int64, k Key, f format) (*shard, error) {
	in := io.NewSectionReader(r, 0, size)
	sum := sha256.New()
	head := make([]byte, len(rowsMagic)+len(k)+8)
	if err := readFull(io.TeeReader(in, sum), head); err != nil {
		return nil, err
	}
	rank := binary.LittleEndian.Uint64(head[len(rowsMagic)+len(k):])
	switch {
	case string(head[:len(rowsMagic)]) != f.magic:
		return nil, damaged{"not a feature file of this precision"}
	case !bytes.Equal(head[len(rowsMagic):len(rowsMagic)+len(k)], k[:]):
		return nil, damaged{"holds the features of another source"}
	case rank < 1 || rank > maxRank:
		return nil, damaged{fmt.Sprintf("rank %d", rank)}
	}
	dims := make([]byte, 8*rank)
	if err := readFull(io.TeeReader(in, sum), dims); err != nil {
		return nil, err
	}
	at := int64(len(head) + len(dims))
	left := size - at - sha256.Size
	out := &shard{f: f, r: r, at: at}
	const most = 1 << 40
	n := uint64(1)
	for i := range int(rank) {
		d := binary.LittleEndian.Uint64(dims[8*i:])
		if d > math.MaxInt32 || d > 0 && n > most/d {
			return nil, damaged{"an impossible shape"}
		}
		n *= d
		out.shape = append(out.shape, int(d))
	}
	if int64(n)*int64(f.bytes) != left {
		return nil, damaged{fmt.Sprintf("its %d bytes do not hold its shape", size)}
	}
	if _, err := io.Copy(sum, io.LimitReader(in, left)); err != nil {
		return nil, err
	}
	want := make([]byte, sha256.Size)
	if err := readFull(in, want); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, damaged{"its checksum does not match"}
	}
	return out, nil
}

func readFull(r io.Reader, to []byte) error {
	_, err := io.ReadFull(r, to)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged{"truncated"}
	}
	return err
}

// read reads a row into to, by way of a buffer raw that has the size of a row in the file.
func (s *shard) read(row int, to []float32, raw []byte) error {
	_, err := s.r.ReadAt(raw, s.at+int64(row)*int64(len(raw)))
	if err == nil {
		s.f.get(to, raw)
	}
	return err
}

// writer writes a matrix into a temporary file and puts it in place at commit.
type writer struct {
	f     *os.File
	b     *bufio.Writer
	sum   hash.Hash
	out   io.Writer // both
	path  string
	form  format
	shape []int
	left  int // elements
}

func newWriter(f *os.File, path string, k Key, shape []int, form format) (*writer, error) {
	if len(shape) < 1 || len(shape) > maxRank || slices.Min(shape) < 0 {
		return nil, fmt.Errorf("feature cache: shape %v: take 1 to %d dimensions of 0 or more", shape, maxRank)
	}
	w := &writer{f: f, b: bufio.NewWriterSize(f, 1<<16), sum: sha256.New(), path: path, form: form,
		shape: slices.Clone(shape),
		left:  tensor.Size(shape)}
	w.out = io.MultiWriter(w.b, w.sum)
	head := append([]byte(form.magic), k[:]...)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(shape)))
	for _, d := range shape {
		head = binary.LittleEndian.AppendUint64(head, uint64(d))
	}
	_, err := w.out.Write(head)
	return w, err
}

// append adds rows as Matrix.Append does.
func (w *writer) append(rows *tensor.Tensor) error {
	if len(rows.Shape) != len(w.shape) || !slices.Equal(rows.Shape[1:], w.shape[1:]) || len(rows.Data) > w.left {
		return fmt.Errorf("feature cache: rows %v do not fit in what is left of %v", rows.Shape, w.shape)
	}
	if w.form.bytes == 4 {
		if i := rows.Finite(); i >= 0 {
			return fmt.Errorf("feature cache: element %d of %v is %g", i, rows.Shape, rows.Data[i])
		}
	} else if err := RoundHalf(rows); err != nil {
		return fmt.Errorf("feature cache: %w", err)
	}
	raw := make([]byte, 0, 1<<15)
	for part := range slices.Chunk(rows.Data, cap(raw)/w.form.bytes) {
		if _, err := w.out.Write(w.form.put(raw[:0], part)); err != nil {
			return fmt.Errorf("feature cache: %w", err)
		}
	}
	w.left -= len(rows.Data)
	return nil
}

// commit puts the matrix in place. Missing rows are an error, and nothing is put in place. The file is not flushed to
// the device: what a crash of the system leaves of it fails its checksum and is computed again.
func (w *writer) commit() (err error) {
	defer func() {
		if err != nil {
			w.abort()
			err = fmt.Errorf("feature cache: cannot write %s: %w", w.path, err)
		}
	}()
	if w.left > 0 {
		return fmt.Errorf("%d elements of %v are missing", w.left, w.shape)
	}
	if _, err := w.b.Write(w.sum.Sum(nil)); err != nil {
		return err
	}
	if err := w.b.Flush(); err != nil {
		return err
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	return os.Rename(w.f.Name(), w.path)
}

// abort throws the matrix away.
func (w *writer) abort() {
	w.f.Close()
	os.Remove(w.f.Name())
}
