package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"promptfed/runtime/tensor"
)

var le = binary.LittleEndian

// dtypes are the dtypes of the format with whole bytes: the size of an element, and what it becomes in a tensor. A
// number that is neither a real number nor an integer (complex, or a float of 8 bits) does not become one.
var dtypes = map[string]struct {
	size int
	real bool
	int  func(element []byte) int64
}{
	"F64": {8, true, nil}, "F32": {4, true, nil}, "F16": {2, true, nil}, "BF16": {2, true, nil},
	"C64": {8, false, nil}, "F8_E5M2": {1, false, nil}, "F8_E4M3": {1, false, nil}, "F8_E8M0": {1, false, nil},
	"BOOL": {1, false, func(b []byte) int64 { return int64(b[0]) }},
	"U8":   {1, false, func(b []byte) int64 { return int64(b[0]) }},
	"I8":   {1, false, func(b []byte) int64 { return int64(int8(b[0])) }},
	"U16":  {2, false, func(b []byte) int64 { return int64(le.Uint16(b)) }},
	"I16":  {2, false, func(b []byte) int64 { return int64(int16(le.Uint16(b))) }},
	"U32":  {4, false, func(b []byte) int64 { return int64(le.Uint32(b)) }},
	"I32":  {4, false, func(b []byte) int64 { return int64(int32(le.Uint32(b))) }},
	"U64":  {8, false, func(b []byte) int64 { return int64(le.Uint64(b)) }},
	"I64":  {8, false, func(b []byte) int64 { return int64(le.Uint64(b)) }},
}

// ElementSize returns the size in bytes of one element of a dtype ("F32", "F16", "BF16", "I64", ...), 0 if it is
// unknown.
func ElementSize(dtype string) int { return dtypes[dtype].size }

// NewTensor returns a zeroed tensor of the kind of a dtype: float32 for F32, F16, BF16 and F64, int64 for integers and
// booleans. Other dtypes are an error, which names the dtype.
func NewTensor(dtype string, shape []int) (*tensor.Tensor, error) {
	switch d := dtypes[dtype]; {
	case d.real:
		return tensor.New(shape...), nil
	case d.int != nil:
		return tensor.OfInts(make([]int64, tensor.Size(shape)), shape...), nil
	}

	return nil, fmt.Errorf("dtype %q cannot be read as numbers; store the tensor as F32, F16, BF16, F64 or an integer "+
		"type", dtype)
}

// Decode converts little-endian elements of raw into values, from element at on. F16 and BF16 convert exactly, F64
// rounds to the nearest float32, integers and booleans become int64; a U64 above the int64 range is an error.
func Decode(dtype string, raw []byte, values *tensor.Tensor, at int) error {
	kind := dtypes[dtype]
	n := len(raw) / max(1, kind.size)
	switch dtype {
	case "F32":
		_, err := binary.Decode(raw, le, values.Data[at:at+n])
		return err
	case "F16":
		for i := range n {
			values.Data[at+i] = float16.Frombits(le.Uint16(raw[2*i:])).Float32()
		}
	case "BF16":
		for i := range n {
			values.Data[at+i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
	case "F64":
		for i := range n {
			values.Data[at+i] = float32(math.Float64frombits(le.Uint64(raw[8*i:])))
		}
	default:
		if kind.int == nil {
			return fmt.Errorf("dtype %q cannot be read as numbers", dtype)
		}
		for i := range n {
			if values.Ints[at+i] = kind.int(raw[kind.size*i:]); values.Ints[at+i] < 0 && dtype == "U64" {
				return fmt.Errorf("element %d is %d, which does not fit int64", at+i, uint64(values.Ints[at+i]))
			}
		}
	}

	return nil
}
