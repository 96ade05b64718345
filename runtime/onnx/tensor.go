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
func checkTensor(proto *TensorProto) error {
	size, known, err := ByteSize(proto)
	if err == nil && IsExternal(proto) {
		_, err = ExternalOf(proto)
		return err // the error names the tensor
	}

	if err != nil {
		return fmt.Errorf("tensor %q: %w", proto.Name, err)
	}

	typed, counts := len(proto.Int32Data), true
	switch TensorProto_DataType(proto.DataType) {
	case TensorProto_FLOAT:
		typed = len(proto.FloatData)
	case TensorProto_DOUBLE:
		typed = len(proto.DoubleData)
	case TensorProto_INT64:
		typed = len(proto.Int64Data)
	case TensorProto_UINT32, TensorProto_UINT64:
		typed = len(proto.Uint64Data)
	case TensorProto_INT32, TensorProto_INT16, TensorProto_INT8, TensorProto_UINT16, TensorProto_UINT8,
		TensorProto_BOOL, TensorProto_FLOAT16, TensorProto_BFLOAT16:
	default: // packed in pairs, complex, or without a fixed size
		counts = false
	}

	if known && len(proto.RawData) > 0 && int64(len(proto.RawData)) != size {
		return fmt.Errorf("tensor %q: %d bytes for dimensions %v", proto.Name, len(proto.RawData), proto.Dims)
	}

	if n, err := NumElements(proto.Dims); err != nil || counts && len(proto.RawData) == 0 && int64(typed) != n {
		return fmt.Errorf("tensor %q: %d elements for dimensions %v", proto.Name, typed, proto.Dims)
	}

	return nil
}

// RawData returns the elements of a tensor in memory, in row order, little-endian, in their own type; nil for external
// data.
func RawData(proto *TensorProto) []byte {
	if IsExternal(proto) || len(proto.RawData) > 0 {
		return proto.RawData
	}

	raw, _ := binary.Append(nil, binary.LittleEndian, proto.FloatData) // slices of numbers cannot fail
	raw, _ = binary.Append(raw, binary.LittleEndian, proto.DoubleData)
	raw, _ = binary.Append(raw, binary.LittleEndian, proto.Int64Data)
	put := func(v uint64) { // one number per element, also for smaller types
		switch bits[TensorProto_DataType(proto.DataType)] {
		case 64:
			raw = binary.LittleEndian.AppendUint64(raw, v)
		case 32:
			raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
		case 16:
			raw = binary.LittleEndian.AppendUint16(raw, uint16(v))
		default:
			raw = append(raw, byte(v))
		}
	}

	for _, v := range proto.Int32Data {
		put(uint64(v))
	}

	for _, v := range proto.Uint64Data {
		put(v)
	}

	return raw
}

// ConstantOf returns the content of a Constant node, and nil for other nodes and for kinds of content that no operator
// here reads.
func ConstantOf(n *NodeProto) (*TensorProto, error) {
	if n.OpType != "Constant" || len(n.Attribute) != 1 {
		return nil, nil
	}

	attribute := n.Attribute[0]
	proto := &TensorProto{}
	switch attribute.Name {
	case "value":
		if proto = attribute.T; proto == nil {
			return nil, fmt.Errorf("its value is not a tensor")
		}
	case "value_int":
		proto.DataType = int32(TensorProto_INT64)
		proto.RawData = binary.LittleEndian.AppendUint64(nil, uint64(attribute.I))
	case "value_float":
		proto.DataType = int32(TensorProto_FLOAT)
		proto.RawData = binary.LittleEndian.AppendUint32(nil, math.Float32bits(attribute.F))
	case "value_ints":
		proto.DataType = int32(TensorProto_INT64)
		proto.Dims, proto.Int64Data = []int64{int64(len(attribute.Ints))}, attribute.Ints
	case "value_floats":
		proto.DataType = int32(TensorProto_FLOAT)
		proto.Dims, proto.FloatData = []int64{int64(len(attribute.Floats))}, attribute.Floats
	default:
		return nil, nil
	}

	return proto, checkTensor(proto)
}
