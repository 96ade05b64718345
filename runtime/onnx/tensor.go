package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits of a tensor.
const (
	MaxSize = 1 << 40 // of one axis, and elements of one tensor
	MaxRank = 64
)

// bits is the size of an element, for types of fixed size.
var bits = map[TensorProto_DataType]int64{
	TensorProto_FLOAT: 32, TensorProto_DOUBLE: 64, TensorProto_FLOAT16: 16, TensorProto_BFLOAT16: 16,
	TensorProto_INT8: 8, TensorProto_INT16: 16, TensorProto_INT32: 32, TensorProto_INT64: 64,
	TensorProto_UINT8: 8, TensorProto_UINT16: 16, TensorProto_UINT32: 32, TensorProto_UINT64: 64,
	TensorProto_BOOL: 8, TensorProto_COMPLEX64: 64, TensorProto_COMPLEX128: 128,
	TensorProto_FLOAT8E4M3FN: 8, TensorProto_FLOAT8E4M3FNUZ: 8, TensorProto_FLOAT8E5M2: 8,
	TensorProto_FLOAT8E5M2FNUZ: 8, TensorProto_UINT4: 4, TensorProto_INT4: 4, TensorProto_FLOAT4E2M1: 4,
	25: 2, 26: 2, // UINT2 and INT2
}

// NumElements returns the number of elements of a tensor with these dimensions.
func NumElements(dims []int64) (int64, error) {
	if len(dims) > MaxRank {
		return 0, fmt.Errorf("%d dimensions; at most %d are supported", len(dims), MaxRank)
	}
	n := int64(1)
	for _, d := range dims {
		if d < 0 || d > MaxSize || d > 0 && n > MaxSize/d {
			return 0, fmt.Errorf("dimensions %v are out of range", dims)
		}
		n *= d
	}
	return n, nil
}

// ByteSize returns the size of a tensor as raw data in row order; known is false for types without a fixed size.
func ByteSize(t *TensorProto) (n int64, known bool, err error) {
	n, err = NumElements(t.Dims)
	b, known := bits[TensorProto_DataType(t.DataType)]
	return (n*b + 7) / 8, known, err
}

// checkTensor rejects a tensor whose dimensions are out of range, or whose data do not have the length of the
// dimensions.
func checkTensor(t *TensorProto) error {
	size, known, err := ByteSize(t)
	if err == nil && IsExternal(t) {
		_, err = ExternalOf(t)
		return err // the error names the tensor
	}
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	typed, counts := len(t.Int32Data), true
	switch TensorProto_DataType(t.DataType) {
	case TensorProto_FLOAT:
		typed = len(t.FloatData)
	case TensorProto_DOUBLE:
		typed = len(t.DoubleData)
	case TensorProto_INT64:
		typed = len(t.Int64Data)
	case TensorProto_UINT32, TensorProto_UINT64:
		typed = len(t.Uint64Data)
	case TensorProto_INT32, TensorProto_INT16, TensorProto_INT8, TensorProto_UINT16, TensorProto_UINT8,
		TensorProto_BOOL, TensorProto_FLOAT16, TensorProto_BFLOAT16:
	default: // packed in pairs, complex, or without a fixed size
		counts = false
	}
	if known && len(t.RawData) > 0 && int64(len(t.RawData)) != size {
		return fmt.Errorf("tensor %q: %d bytes for dimensions %v", t.Name, len(t.RawData), t.Dims)
	}
	if n, err := NumElements(t.Dims); err != nil || counts && len(t.RawData) == 0 && int64(typed) != n {
		return fmt.Errorf("tensor %q: %d elements for dimensions %v", t.Name, typed, t.Dims)
	}
	return nil
}

// RawData returns the elements of a tensor in memory, in row order, little-endian, in their own type; nil for external
// data.
func RawData(t *TensorProto) []byte {
	if IsExternal(t) || len(t.RawData) > 0 {
		return t.RawData
	}
	var b []byte
	for _, v := range t.FloatData {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range t.DoubleData {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	for _, v := range t.Int64Data {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range t.Int32Data { // one number per element, also for smaller types
		switch bits[TensorProto_DataType(t.DataType)] {
		case 32:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case 16:
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		default:
			b = append(b, byte(v))
		}
	}
	return b
}

// ConstantOf returns the content of a Constant node, and nil for other nodes and for kinds of content that no operator
// here reads.
func ConstantOf(n *NodeProto) (*TensorProto, error) {
	if n.OpType != "Constant" || len(n.Attribute) != 1 {
		return nil, nil
	}
	a := n.Attribute[0]
	t := &TensorProto{}
	switch a.Name {
	case "value":
		if t = a.T; t == nil {
			return nil, fmt.Errorf("its value is not a tensor")
		}
	case "value_int":
		t.DataType = int32(TensorProto_INT64)
		t.RawData = binary.LittleEndian.AppendUint64(nil, uint64(a.I))
	case "value_float":
		t.DataType = int32(TensorProto_FLOAT)
		t.RawData = binary.LittleEndian.AppendUint32(nil, math.Float32bits(a.F))
	case "value_ints":
		t.DataType, t.Dims, t.Int64Data = int32(TensorProto_INT64), []int64{int64(len(a.Ints))}, a.Ints
	case "value_floats":
		t.DataType, t.Dims, t.FloatData = int32(TensorProto_FLOAT), []int64{int64(len(a.Floats))}, a.Floats
	default:
		return nil, nil
	}
	return t, checkTensor(t)
}
