package graph

import "promptfed/runtime/onnx"

// Place is where the elements of a constant lie in a file; ok is false for one that is held in memory.
func (l *Literal) Place() (e External, ok bool) {
	if l.External != nil {
		return *l.External, true
	}
	if !onnx.IsExternal(l.Proto) {
		return External{}, false
	}
	e, err := onnx.ExternalOf(l.Proto)
	return e, err == nil
}

// Bytes are the elements of a constant that is held in memory, row by row and little-endian in their own type; nil for
// one in a file.
func (l *Literal) Bytes() []byte {
	if l.Tensor != nil {
		return rawBytes(l.Tensor)
	}
	if l.Proto == nil {
		return nil
	}
	return onnx.Raw(l.Proto)
}
