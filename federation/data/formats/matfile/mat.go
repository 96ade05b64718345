package matfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
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

// Read reads a small numeric variable of a MATLAB 5 file, such as a list of labels. It returns the dimensions and the
// numbers in column-major order.
func Read(path, name string) (dims []int, numbers []float64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	vars, err := Variables(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	v, err := Find(vars, name)
	if err == nil {
		numbers, err = v.Numbers(f)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return v.Dims, numbers, nil
}

func Find(vars []*Variable, name string) (*Variable, error) {
	var have []string
	for _, v := range vars {
		if v.Name == name {
			return v, nil
		}
		have = append(have, v.Name)
	}
	return nil, fmt.Errorf("no numeric variable %q in it: it has %s", name, strings.Join(have, ", "))
}

// Variables lists the numeric arrays of a file and skips other kinds of variables. It reads only their headers.
func Variables(r io.ReaderAt) ([]*Variable, error) {
	var head [matHeader]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
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
		switch n, err := r.ReadAt(tag[:], at); {
		case n == 0 && err == io.EOF:
			return out, nil
		case n < len(tag):
			return nil, fmt.Errorf("the file ends inside the tag at byte %d: it is truncated, fetch it again", at)
		}
		kind, length := order.Uint32(tag[:4]), int64(order.Uint32(tag[4:]))
		v := &Variable{order: order, Element: at + 8, length: length, Compressed: kind == matCompressed}
		var last [1]byte
		if _, err := r.ReadAt(last[:], at+8+length-1); err != nil {
			return nil, fmt.Errorf("the file ends inside the element at byte %d: it is truncated, fetch it again", at)
		}
		at += 8 + length
		if kind != matCompressed && kind != matMatrix {
			continue
		}
		ok, err := v.head(r)
		if err != nil {
			return nil, fmt.Errorf("element at byte %d: %w", v.Element-8, err)
		}
		if ok {
			out = append(out, v)
		}
	}
}
