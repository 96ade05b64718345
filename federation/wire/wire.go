// Package wire is the encoded form of what travels between server and clients: named tensors, as a safetensors file.
package wire

import (
	"bytes"
	"fmt"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Encode writes tensors in the form in which they are sent. The same tensors give the same bytes.
func Encode(m tensor.Map) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(m.Bytes() + 1024)
	if err := safetensors.Write(&b, m, nil); err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	return b.Bytes(), nil
}

// Decode reads what Encode wrote. Damaged bytes are an error, and so are element types that Encode does not write: in
// memory smaller ones take up to eight times their encoded size.
func Decode(b []byte) (tensor.Map, error) {
	f, err := safetensors.Parse(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	for _, name := range f.Names() {
		info, err := f.Info(name)
		if err == nil && info.DType != "F32" && info.DType != "I64" {
			err = fmt.Errorf("tensor %.100q has elements of type %s; messages have only F32 and I64", name, info.DType)
		}
		if err != nil {
			return nil, fmt.Errorf("decoding a message: %w", err)
		}
	}
	m, err := f.Tensors()
	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	return m, nil
}

// Size is the number of bytes that Encode gives.
func Size(m tensor.Map) int {
	n, err := safetensors.Size(m, nil)
	if err != nil {
		return m.Bytes()
	}
	return int(n)
}
