package matfile

import (
	"bufio"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// MATLAB 5 files ("MAT-File Format", The MathWorks, sections 1-1 to 1-20) have a header of 128 bytes and then elements:
// a type, a length and that many bytes. An element is a matrix, or a zlib stream that holds one. No Go library that the
// module proxy serves reads them without turning every number into float64, which for SVHN would take 2 GB.
const (
	matHeader     = 128
	matMatrix     = 14 // miMATRIX
	matCompressed = 15 // miCOMPRESSED
	matMaxName    = 256
	matMaxDims    = 8
	matMaxNumbers = 1 << 24 // limit of Numbers
)

// matTypes lists the numeric element types: bytes per number and how to read one.
var matTypes = map[uint32]struct {
	size int
	read func(binary.ByteOrder, []byte) float64
}{
	1:  {1, func(_ binary.ByteOrder, b []byte) float64 { return float64(int8(b[0])) }},
	2:  {1, func(_ binary.ByteOrder, b []byte) float64 { return float64(b[0]) }},
	3:  {2, func(o binary.ByteOrder, b []byte) float64 { return float64(int16(o.Uint16(b))) }},
	4:  {2, func(o binary.ByteOrder, b []byte) float64 { return float64(o.Uint16(b)) }},
	5:  {4, func(o binary.ByteOrder, b []byte) float64 { return float64(int32(o.Uint32(b))) }},
	6:  {4, func(o binary.ByteOrder, b []byte) float64 { return float64(o.Uint32(b)) }},
	7:  {4, func(o binary.ByteOrder, b []byte) float64 { return float64(math.Float32frombits(o.Uint32(b))) }},
	9:  {8, func(o binary.ByteOrder, b []byte) float64 { return math.Float64frombits(o.Uint64(b)) }},
	12: {8, func(o binary.ByteOrder, b []byte) float64 { return float64(int64(o.Uint64(b))) }},
	13: {8, func(o binary.ByteOrder, b []byte) float64 { return float64(o.Uint64(b)) }},
}

// Variable is a numeric array in a MATLAB file. Its numbers stay in the file; the first dimension varies fastest.
type Variable struct {
	Name string
	Dims []int

	order      binary.ByteOrder
	Kind       uint32 // stored type, a key of matTypes
	Element    int64  // offset of the element's bytes in the file
	length     int64  // of the element, in bytes
	Compressed bool
	Skip       int64 // bytes before the first number, after decompression
}

// size returns the number of elements of the array.
func (v *Variable) size() int64 {
	n := int64(1)
	for _, d := range v.Dims {
		n *= int64(d)
	}
	return n
}

// Read reads a small numeric variable of a MATLAB 5 file, such as a list of labels, in column-major order.
func Read(file io.ReaderAt, name string) ([]float64, error) {
	vars, err := Variables(file)
	if err != nil {
		return nil, err
	}

	v, err := Find(vars, name)
	if err != nil {
		return nil, err
	}

	return v.Numbers(file)
}

// Find returns the variable with a name. The error of an unknown name lists the names in the file.
func Find(vars []*Variable, name string) (*Variable, error) {
	var have []string
	for _, v := range vars {
		if v.Name == name {
			return v, nil
		}
		have = append(have, v.Name)
	}

	return nil, fmt.Errorf("no numeric variable %q in it: it has %s", name, cmp.Or(strings.Join(have, ", "), "none"))
}

// Variables lists the numeric arrays of a file and skips other kinds of variables. It reads only their headers.
func Variables(file io.ReaderAt) ([]*Variable, error) {
	var head [matHeader]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, errors.New("shorter than the header of a MATLAB 5 file: expected a .mat file saved with -v7 or -v6")
	}

	var order binary.ByteOrder = binary.LittleEndian
	switch string(head[126:128]) {
	case "IM":
	case "MI":
		order = binary.BigEndian
	default:
		return nil, errors.New("not a MATLAB 5 file: expected a .mat file saved with -v7 or -v6")
	}

	if version := order.Uint16(head[124:126]); version>>8 != 1 {
		return nil, fmt.Errorf("MATLAB file of version %#x, which is HDF5 from 7.3 on: save it again with -v7", version)
	}

	var out []*Variable
	for at := int64(matHeader); ; {
		var tag [8]byte
		switch n, err := file.ReadAt(tag[:], at); {
		case n == 0 && err == io.EOF:
			return out, nil
		case n < len(tag):
			return nil, fmt.Errorf("the file ends inside the tag at byte %d: it is truncated, fetch it again", at)
		}

		kind, length := order.Uint32(tag[:4]), int64(order.Uint32(tag[4:]))
		variable := &Variable{order: order, Element: at + 8, length: length, Compressed: kind == matCompressed}
		var last [1]byte
		if _, err := file.ReadAt(last[:], at+8+length-1); err != nil {
			return nil, fmt.Errorf("the file ends inside the element at byte %d: it is truncated, fetch it again", at)
		}

		at += 8 + length
		if kind != matCompressed && kind != matMatrix {
			continue
		}

		ok, err := variable.head(file)
		if err != nil {
			return nil, fmt.Errorf("element at byte %d: %w: the file is damaged, fetch it again", variable.Element-8,
				err)
		}

		if ok {
			out = append(out, variable)
		}
	}
}

// open returns the content of the variable's matrix element, decompressed.
func (v *Variable) open(r io.ReaderAt) (io.Reader, error) {
	raw := bufio.NewReaderSize(io.NewSectionReader(r, v.Element, v.length), 1<<16)
	if !v.Compressed {
		return raw, nil
	}

	z, err := zlib.NewReader(raw)
	if err != nil {
		return nil, fmt.Errorf("its compressed part is broken: %w", err)
	}

	return z, nil
}

// head reads everything before the numbers. It returns false for a matrix that is not full, real and numeric.
func (v *Variable) head(r io.ReaderAt) (bool, error) {
	in, err := v.open(r)
	if err != nil {
		return false, err
	}

	reader := &matReader{in: in, order: v.order}
	if v.Compressed {
		var tag [8]byte
		reader.full(tag[:])
		if reader.err == nil && v.order.Uint32(tag[:4]) != matMatrix {
			return false, nil
		}
	}

	flags := reader.element(16)
	if reader.err != nil || len(flags) < 8 {
		return false, reader.fail("array flags")
	}

	word := v.order.Uint32(flags)
	if class := word & 0xff; class < 6 || class > 15 || word&0x0800 != 0 {
		return false, nil // cell, structure, object, text, sparse or complex
	}

	dims := reader.element(4 * matMaxDims)
	if reader.err != nil || len(dims) < 8 || len(dims)%4 != 0 {
		return false, reader.fail("dimensions")
	}

	for ; len(dims) > 0; dims = dims[4:] {
		d := int32(v.order.Uint32(dims))
		if d < 0 {
			return false, fmt.Errorf("dimension %d is negative", d)
		}
		v.Dims = append(v.Dims, int(d))
		if v.size() > math.MaxInt32*2 {
			return false, fmt.Errorf("dimensions %d are more than a MATLAB 5 array may hold", v.Dims)
		}
	}

	name := reader.element(matMaxName)
	if reader.err != nil {
		return false, reader.fail("name")
	}

	v.Name = strings.ToValidUTF8(string(name), "?")
	kind, length, _ := reader.tag()
	if reader.err != nil {
		return false, reader.fail("numbers")
	}

	t, ok := matTypes[kind]
	if !ok || int64(length) != v.size()*int64(t.size) {
		return false, fmt.Errorf("variable %q: %d bytes of type %d do not make %d numbers", v.Name, length, kind,
			v.Dims)
	}

	v.Kind, v.Skip = kind, reader.at
	return true, nil
}

// Data returns a reader of the stored numbers, decompressed, and their size in bytes.
func (v *Variable) Data(r io.ReaderAt) (io.Reader, int64, error) {
	size := v.size() * int64(matTypes[v.Kind].size)
	in, err := v.open(r)
	if err != nil {
		return nil, 0, err
	}

	if _, err := io.CopyN(io.Discard, in, v.Skip); err != nil {
		return nil, 0, fmt.Errorf("variable %q is truncated: fetch the file again", v.Name)
	}

	return io.LimitReader(in, size), size, nil
}

// Numbers reads the numbers of a small variable.
func (v *Variable) Numbers(r io.ReaderAt) ([]float64, error) {
	if v.size() > matMaxNumbers {
		return nil, fmt.Errorf("variable %q has %d numbers: expected at most %d", v.Name, v.size(), matMaxNumbers)
	}

	in, size, err := v.Data(r)
	if err != nil {
		return nil, err
	}

	raw, err := io.ReadAll(in)
	if err != nil || int64(len(raw)) < size {
		return nil, fmt.Errorf("variable %q ends after %d of %d bytes: fetch the file again", v.Name, len(raw), size)
	}

	t := matTypes[v.Kind]
	out := make([]float64, v.size())
	for i := range out {
		out[i] = t.read(v.order, raw[i*t.size:])
	}

	return out, nil
}

// matReader reads the parts of a matrix element. It counts the bytes and keeps the first error.
type matReader struct {
	in    io.Reader
	order binary.ByteOrder
	at    int64
	err   error
}

func (m *matReader) full(b []byte) {
	if m.err == nil {
		var n int
		n, m.err = io.ReadFull(m.in, b)
		m.at += int64(n)
	}
}

// tag reads the type and the length of a part. The bytes of a small part, at most four, lie in the second half of its
// tag.
func (m *matReader) tag() (kind, length uint32, small bool) {
	var word [4]byte
	m.full(word[:])
	kind = m.order.Uint32(word[:])
	if length = kind >> 16; length > 0 {
		if length > 4 && m.err == nil {
			m.err = errors.New("a small part of more than four bytes")
		}
		return kind & 0xffff, length, true
	}

	m.full(word[:])
	return kind, m.order.Uint32(word[:]), false
}

// element reads a part of at most limit bytes, and the padding after it.
func (m *matReader) element(limit uint32) []byte {
	_, length, small := m.tag()
	if m.err == nil && length > limit {
		m.err = fmt.Errorf("a part of %d bytes, expected at most %d", length, limit)
	}

	if m.err != nil {
		return nil
	}

	b := make([]byte, (length+7)&^7)
	if small {
		b = b[:4]
	}

	m.full(b)
	return b[:length]
}

func (m *matReader) fail(what string) error {
	return fmt.Errorf("its %s cannot be read: %w", what, cmp.Or(m.err, io.ErrUnexpectedEOF))
}
