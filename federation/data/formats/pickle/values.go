package pickle

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/nlpodyssey/gopickle/types"
)

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
func Values(r io.ReaderAt, v any) ([]any, error) {
	var list []any
	switch v := v.(type) {
	case *types.List:
		list = *v
	case *types.Tuple:
		list = *v
	case *Array:
		if v.Dtype.Letter != 'O' {
			return v.values(r)
		}
		list = v.list
	default:
		return nil, fmt.Errorf("%T where a list is expected", v)
	}
	out := make([]any, len(list))
	for i, e := range list {
		if a, ok := e.(*Array); ok && len(a.Shape) == 0 && a.Dtype.Letter != 'O' {
			one, err := a.values(r)
			if err != nil {
				return nil, err
			}
			e = one[0]
		}
		if s, ok := Text(e); ok {
			e = s
		}
		switch e.(type) {
		case int, string:
			out[i] = e
		default:
			return nil, fmt.Errorf("element %d of a list is %T: expected a whole number or a string", i, e)
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
func (t DType) value(b []byte) (any, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if t.big {
		order = binary.BigEndian
	}
	switch t.Letter {
	case 'S':
		return strings.TrimRight(string(b), "\x00"), nil
	case 'U':
		var s strings.Builder
		for ; len(b) >= 4; b = b[4:] {
			if r := rune(order.Uint32(b)); r != 0 {
				s.WriteRune(r)
			}
		}
		return s.String(), nil
	case 'f':
		x := math.NaN()
		switch t.Size {
		case 4:
			x = float64(math.Float32frombits(order.Uint32(b)))
		case 8:
			x = math.Float64frombits(order.Uint64(b))
		}
		if x != math.Trunc(x) || math.Abs(x) > math.MaxInt32 {
			return nil, fmt.Errorf("%v where a whole number is expected", x)
		}
		return int(x), nil
	}
	if len(b) > 8 || bits.OnesCount(uint(len(b))) != 1 {
		return nil, fmt.Errorf("numpy type %c%d", t.Letter, t.Size)
	}
	var wide [8]byte
	if copy(wide[:], b); t.big {
		slices.Reverse(wide[:len(b)])
	}
	u := binary.LittleEndian.Uint64(wide[:])
	if unused := 64 - 8*len(b); t.Letter == 'i' { // extend the sign
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
