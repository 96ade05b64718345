package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"promptfed/runtime/tensor"
)

// elementSize gives the bytes of one element of every dtype the format names whose elements are whole bytes.
var elementSize = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "F64": 8, "C64": 8,
}

// ElementSize is the number of bytes of one element of a dtype ("F32", "F16", "BF16", "I64", ...), or 0 when unknown.
func ElementSize(dtype string) int { return elementSize[dtype] }

// Numeric tells whether a dtype converts to a tensor: every real one of 1, 2, 4 or 8 bytes but the 8-bit floats.
func Numeric(dtype string) bool {
	switch dtype {
	case "F32", "F16", "BF16", "F64":
		return true
	}
	return integer(dtype)
}

func integer(dtype string) bool {
	switch dtype {
	case "BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64":
		return true
	}
	return false
}

// NewTensor returns a zeroed tensor of the kind a dtype converts to: float32 for F32, F16, BF16 and F64,
// int64 for integers and booleans. An error names a dtype that has no conversion.
func NewTensor(dtype string, shape []int) (*tensor.Tensor, error) {
	switch {
	case !Numeric(dtype):
		return nil, fmt.Errorf("dtype %q cannot be read as numbers; store the tensor as F32, F16, BF16, F64 or an "+
			"integer type", dtype)
	case integer(dtype):
		return tensor.OfInts(make([]int64, tensor.Size(shape)), shape...), nil
	}
	return tensor.New(shape...), nil
}

// Decode converts little-endian elements of raw into t from element at on. F16 and BF16 convert exactly, F64 rounds to
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
			t.Data[at+i] = Half(le.Uint16(raw[2*i:]))
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

// Half converts an IEEE 754 binary16 number to float32 exactly, subnormals, infinities and NaN payloads included.
func Half(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h&0x3ff)
	switch exp {
	case 0:
		f := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
