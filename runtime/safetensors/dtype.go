package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"promptfed/runtime/tensor"
)

// elementSize is the size in bytes of one element of every dtype of the format with whole bytes.
var elementSize = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "F64": 8, "C64": 8,
}

// ElementSize returns the size in bytes of one element of a dtype ("F32", "F16", "BF16", "I64", ...), 0 if it is
// unknown.
func ElementSize(dtype string) int { return elementSize[dtype] }

// numeric lists the dtypes that convert to a tensor (every real one of 1, 2, 4 or 8 bytes except the 8-bit floats);
// true means an integer tensor.
var numeric = map[string]bool{
	"F32": false, "F16": false, "BF16": false, "F64": false, "BOOL": true, "U8": true, "I8": true, "U16": true,
	"I16": true, "U32": true, "I32": true, "U64": true, "I64": true,
}

// NewTensor returns a zeroed tensor of the kind of a dtype: float32 for F32, F16, BF16 and F64, int64 for integers and
// booleans. Other dtypes are an error, which names the dtype.
func NewTensor(dtype string, shape []int) (*tensor.Tensor, error) {
	switch integer, ok := numeric[dtype]; {
	case !ok:
		return nil, fmt.Errorf("dtype %q cannot be read as numbers; store the tensor as F32, F16, BF16, F64 or an "+
			"integer type", dtype)
	case integer:
		return tensor.OfInts(make([]int64, tensor.Size(shape)), shape...), nil
	}
	return tensor.New(shape...), nil
}

// Decode converts little-endian elements of raw into t, from element at on. F16 and BF16 convert exactly, F64 rounds to
// the nearest float32, integers and booleans become int64; a U64 above the int64 range is an error.
func Decode(dtype string, raw []byte, t *tensor.Tensor, at int) error {
	le := binary.LittleEndian
	n := len(raw) / max(1, elementSize[dtype])
	switch dtype {
	case "F32":
		for i := range n {
			t.Data[at+i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
	case "F16":
		for i := range n {
			t.Data[at+i] = float16.Frombits(le.Uint16(raw[2*i:])).Float32()
		}
	case "BF16":
		for i := range n {
			t.Data[at+i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
	case "F64":
		for i := range n {
			t.Data[at+i] = float32(math.Float64frombits(le.Uint64(raw[8*i:])))
		}
	case "BOOL", "U8":
		for i := range n {
			t.Ints[at+i] = int64(raw[i])
		}
	case "I8":
		for i := range n {
			t.Ints[at+i] = int64(int8(raw[i]))
		}
	case "U16":
		for i := range n {
			t.Ints[at+i] = int64(le.Uint16(raw[2*i:]))
		}
	case "I16":
		for i := range n {
			t.Ints[at+i] = int64(int16(le.Uint16(raw[2*i:])))
		}
	case "U32":
		for i := range n {
			t.Ints[at+i] = int64(le.Uint32(raw[4*i:]))
		}
	case "I32":
		for i := range n {
			t.Ints[at+i] = int64(int32(le.Uint32(raw[4*i:])))
		}
	case "I64":
		for i := range n {
			t.Ints[at+i] = int64(le.Uint64(raw[8*i:]))
		}
	case "U64":
		for i := range n {
			v := le.Uint64(raw[8*i:])
			if v > math.MaxInt64 {
				return fmt.Errorf("element %d is %d, which does not fit int64", at+i, v)
			}
			t.Ints[at+i] = int64(v)
		}
	default:
		return fmt.Errorf("dtype %q cannot be read as numbers", dtype)
	}
	return nil
}
