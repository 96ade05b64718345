package graph

import (
	"encoding/binary"
	"math"
	"strconv"

	"promptfed/runtime/onnx"
)

// Place is where the elements of a constant lie in a file; ok is false for one that is held in memory, or whose
// reference is damaged. A length of 0 means to the end of the file.
func (l *Literal) Place() (e External, ok bool) {
	if l.External != nil {
		return *l.External, true
	}
	if l.Proto == nil || l.Proto.DataLocation != onnx.TensorProto_EXTERNAL {
		return External{}, false
	}
	for _, entry := range l.Proto.ExternalData {
		var err error
		switch entry.Key {
		case "location":
			e.File = entry.Value
		case "offset":
			e.Offset, err = strconv.ParseInt(entry.Value, 10, 64)
		case "length":
			e.Length, err = strconv.ParseInt(entry.Value, 10, 64)
		}
		if err != nil {
			return External{}, false
		}
	}
	return e, e.File != "" && e.Offset >= 0 && e.Length >= 0
}

// Bytes are the elements of a constant that is held in memory, row by row and little-endian in their own type; nil for
// one in a file.
func (l *Literal) Bytes() []byte {
	if l.Tensor != nil {
		return rawBytes(l.Tensor)
	}
	p := l.Proto
	if p == nil || p.DataLocation == onnx.TensorProto_EXTERNAL {
		return nil
	}
	if len(p.RawData) > 0 {
		return p.RawData
	}
	var b []byte
	for _, v := range p.FloatData {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range p.DoubleData {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	for _, v := range p.Int64Data {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range p.Int32Data { // smaller types are stored one to a number, too
		switch DType(p.DataType) {
		case Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case Half, onnx.TensorProto_BFLOAT16:
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		default:
			b = append(b, byte(v))
		}
	}
	return b
}
