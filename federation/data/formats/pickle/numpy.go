package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/unpickle"
)

// DType is a numpy dtype: a letter of numpy's array protocol and the number of bytes of an element.
type DType struct {
	Letter byte // i, u, b, f, U, S, O
	Size   int
	big    bool
}

// Array is a numpy array of a pickle. Its elements lie in Raw or in File, or in list if the dtype is O.
type Array struct {
	Shape   []int
	Dtype   DType
	Fortran bool
	Raw     []byte
	File    *blob
	list    []any
}

// pickleGlobal resolves the global names that pickles of numpy arrays use, and refuses all others.
func pickleGlobal(module, name string) (any, error) {
	switch strings.Replace(module, "numpy._core", "numpy.core", 1) + " " + name {
	case "numpy.core.multiarray _reconstruct":
		return pickleCall(func(...any) (any, error) { return &Array{}, nil }), nil
	case "numpy ndarray", "numpy.core.multiarray ndarray":
		return struct{}{}, nil
	case "numpy dtype":
		return pickleCall(newNpType), nil
	case "numpy.core.multiarray scalar":
		return pickleCall(func(args ...any) (any, error) {
			if len(args) != 2 {
				return nil, errors.New("a numpy number without its bytes")
			}
			return newNpArray(args[0], []int{}, args[1], false)
		}), nil
	case "numpy.core.numeric _frombuffer":
		return pickleCall(func(args ...any) (any, error) {
			if len(args) != 4 {
				return nil, errors.New("a numpy buffer without its shape")
			}
			shape, err := pickleShape(args[2])
			if err != nil {
				return nil, err
			}
			return newNpArray(args[1], shape, args[0], args[3] == "F")
		}), nil
	case "_codecs encode":
		return pickleCall(pickleLatin1), nil
	case "__builtin__ bytes", "builtins bytes":
		return pickleCall(func(...any) (any, error) { return "", nil }), nil
	}

	return nil, fmt.Errorf("it uses the global %q: expected lists, strings, numbers and numpy arrays", module+"."+
		name)
}

// pickleCall makes a Go function callable from a pickle.
type pickleCall func(args ...any) (any, error)

func (c pickleCall) Call(args ...any) (any, error) { return c(args...) }

// pickleLatin1 decodes bytes as Python 3 writes them with protocol 2: a text and the name of its encoding.
func pickleLatin1(args ...any) (any, error) {
	if len(args) != 2 || args[1] != "latin1" {
		return nil, errors.New("bytes in an encoding other than latin1")
	}

	switch v := args[0].(type) {
	case unpickle.Outside:
		return v, nil
	case string:
		out := make([]byte, 0, len(v))
		for _, r := range v {
			if r > 255 {
				return nil, fmt.Errorf("character %q is not a byte", r)
			}
			out = append(out, byte(r))
		}
		return string(out), nil
	}

	return nil, fmt.Errorf("%T where bytes are expected", args[0])
}

// latin1Reader decodes a blob of text.
type latin1Reader struct{ in io.RuneReader }

func (l latin1Reader) Read(out []byte) (int, error) {
	for i := range out {
		r, size, err := l.in.ReadRune()
		if err == nil && (r > 255 || r == utf8.RuneError && size == 1) {
			err = fmt.Errorf("character %q is not a byte", r)
		}
		if err != nil {
			return i, err
		}
		out[i] = byte(r)
	}

	return len(out), nil
}

// newNpType reads a type code such as u1, i8, U20 or O8.
func newNpType(args ...any) (any, error) {
	code, ok := "", false
	if len(args) > 0 {
		code, ok = Text(args[0])
	}

	if !ok || code == "" || strings.IndexByte("iubfUSO", code[0]) < 0 {
		return nil, fmt.Errorf("numpy type %q: expected numbers, strings or objects", code)
	}

	n, err := strconv.Atoi(code[1:])
	if code[1:] != "" && err != nil || n < 0 || n > 1<<16 {
		return nil, fmt.Errorf("numpy type %q has no usable size", code)
	}

	if code[0] == 'U' {
		n *= 4
	}

	return &DType{Letter: code[0], Size: n}, nil
}

// PySetState takes (version, byte order, ..., element size at 5, ...).
func (t *DType) PySetState(state any) error {
	s, ok := state.(*types.Tuple)
	if !ok || len(*s) < 7 {
		return errors.New("a numpy type without its state")
	}

	order, _ := Text((*s)[1])
	t.big = order == ">"
	if n, ok := (*s)[5].(int); ok && n > 0 && n <= 1<<18 {
		t.Size = n
	}

	return nil
}

// PySetState takes (version, shape, type, Fortran order, elements).
func (a *Array) PySetState(state any) error {
	tuple, ok := state.(*types.Tuple)
	if !ok || len(*tuple) != 5 {
		return errors.New("a numpy array without its state")
	}

	shape, err := pickleShape((*tuple)[1])
	if err != nil {
		return err
	}

	fortran, _ := (*tuple)[3].(bool)
	b, err := newNpArray((*tuple)[2], shape, (*tuple)[4], fortran)
	if err == nil {
		*a = *b
	}

	return err
}

func pickleShape(v any) ([]int, error) {
	t, ok := v.(*types.Tuple)
	if !ok {
		return nil, errors.New("a numpy array without a shape")
	}

	out := []int{}
	total := 1
	for _, d := range *t {
		n, ok := d.(int)
		if !ok || n < 0 || n > math.MaxInt32 || len(out) == 8 {
			return nil, fmt.Errorf("dimension %v of a numpy array", d)
		}
		if out = append(out, n); total > 0 && n > math.MaxInt32*4/total {
			return nil, fmt.Errorf("a numpy array of shape %v", out)
		}
		total *= n
	}

	return out, nil
}

// newNpArray returns an array, after it checked that the number of elements agrees with the shape.
func newNpArray(dtype any, shape []int, elements any, fortran bool) (*Array, error) {
	elementType, ok := dtype.(*DType)
	if !ok {
		return nil, errors.New("a numpy array without a type")
	}

	array := &Array{Shape: shape, Dtype: *elementType, Fortran: fortran && len(shape) > 1}
	if l, ok := elements.(*types.List); ok && elementType.Letter == 'O' {
		if array.list = *l; len(array.list) != array.Len() {
			return nil, fmt.Errorf("a numpy array of shape %v with %d objects", shape, len(array.list))
		}
		return array, nil
	}

	length := int64(-1)
	switch v := elements.(type) {
	case unpickle.Outside:
		array.File, length = &blob{v}, v.Length
	case *types.ByteArray:
		array.Raw = *v
	case []byte:
		array.Raw = v
	case string:
		array.Raw = []byte(v)
	default:
		return nil, fmt.Errorf("a numpy array of %T", elements)
	}

	if array.File == nil {
		length = int64(len(array.Raw))
	}

	want := int64(array.Len()) * int64(elementType.Size)
	if elementType.Letter == 'O' || elementType.Size == 0 && array.Len() > 0 || array.File != nil && array.File.Text &&
		length < want || (array.File == nil || !array.File.Text) && length != want {
		return nil, fmt.Errorf("a numpy array of shape %v and type %c%d with %d bytes", shape, elementType.Letter,
			elementType.Size, length)
	}

	return array, nil
}

// Len returns the number of elements: the product of Shape, 1 for a scalar.
func (a *Array) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// bytes returns the elements as stored; r is the file of the pickle.
func (a *Array) bytes(r io.ReaderAt) ([]byte, error) {
	if a.File == nil {
		return a.Raw, nil
	}

	size := int64(a.Len()) * int64(a.Dtype.Size)
	if size > 32<<20 || a.Len() > 1<<21 {
		return nil, fmt.Errorf("a numpy array of shape %v where names or labels are expected", a.Shape)
	}

	return io.ReadAll(io.LimitReader(a.File.Open(r), size))
}

// Values returns the elements of a list, a tuple or an array, each an int or a string. Objects of other types are an
// error.
func Values(file io.ReaderAt, v any) ([]any, error) {
	var list []any
	switch value := v.(type) {
	case *types.List:
		list = *value
	case *types.Tuple:
		list = *value
	case *Array:
		if value.Dtype.Letter != 'O' {
			return value.values(file)
		}
		list = value.list
	default:
		return nil, fmt.Errorf("%T where a list is expected", value)
	}

	out := make([]any, len(list))
	for i, element := range list {
		if a, ok := element.(*Array); ok && len(a.Shape) == 0 && a.Dtype.Letter != 'O' {
			one, err := a.values(file)
			if err != nil {
				return nil, err
			}
			element = one[0]
		}

		if s, ok := Text(element); ok {
			element = s
		}

		switch element.(type) {
		case int, string:
			out[i] = element
		default:
			return nil, fmt.Errorf("element %d of a list is %T: expected a whole number or a string", i, element)
		}
	}

	return out, nil
}

// values returns the elements of an array whose dtype is not O.
func (a *Array) values(r io.ReaderAt) ([]any, error) {
	raw, err := a.bytes(r)
	if err != nil {
		return nil, err
	}

	size := a.Dtype.Size
	out := make([]any, a.Len())
	if len(raw) < len(out)*size {
		return nil, fmt.Errorf("a numpy array of %d elements ends after %d bytes", len(out), len(raw))
	}

	for i := range out {
		if out[i], err = a.Dtype.value(raw[i*size : (i+1)*size]); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// value reads one element.
func (t DType) value(raw []byte) (any, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if t.big {
		order = binary.BigEndian
	}

	switch t.Letter {
	case 'S':
		return strings.TrimRight(string(raw), "\x00"), nil
	case 'U':
		var s strings.Builder
		for ; len(raw) >= 4; raw = raw[4:] {
			if r := rune(order.Uint32(raw)); r != 0 {
				s.WriteRune(r)
			}
		}
		return s.String(), nil
	case 'f':
		x := math.NaN()
		switch t.Size {
		case 4:
			x = float64(math.Float32frombits(order.Uint32(raw)))
		case 8:
			x = math.Float64frombits(order.Uint64(raw))
		}
		if x != math.Trunc(x) || math.Abs(x) > math.MaxInt32 {
			return nil, fmt.Errorf("%v where a whole number is expected", x)
		}
		return int(x), nil
	}

	if len(raw) > 8 || bits.OnesCount(uint(len(raw))) != 1 {
		return nil, fmt.Errorf("numpy type %c%d", t.Letter, t.Size)
	}

	var wide [8]byte
	if copy(wide[:], raw); t.big {
		slices.Reverse(wide[:len(raw)])
	}

	u := binary.LittleEndian.Uint64(wide[:])
	if unused := 64 - 8*len(raw); t.Letter == 'i' { // extend the sign
		return int(int64(u<<unused) >> unused), nil
	}

	return int(u), nil
}

// Text returns a string or bytes as a string.
func Text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
