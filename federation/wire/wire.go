// Package wire is the encoded form of what travels between server and clients: named tensors, as a safetensors file.
package wire

import (
	"bytes"
	"encoding/binary"
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

// Decode reads what Encode wrote. Damaged bytes are an error, and so are element types that Encode does not write,
// which take up to eight times their size in memory, and headers of more than 2 MiB, which take more than that.
func Decode(b []byte) (tensor.Map, error) {
	return decode(b, maxHeader, func(tensor.Forms) error { return nil })
}

// maxHeader is the size of the largest header that Decode reads, in bytes.
const maxHeader = 2 << 20

// elements are the element types that Encode writes, by tensor.Form.Int.
var elements = map[bool]string{false: "F32", true: "I64"}

// decode reads tensors behind a header of at most so many bytes that check accepts.
func decode(b []byte, most int64, check func(tensor.Forms) error) (m tensor.Map, err error) {
	defer func() {
		if err != nil {
			m, err = nil, fmt.Errorf("decoding a message: %w", err)
		}
	}()
	if len(b) >= 8 {
		if n := binary.LittleEndian.Uint64(b); n > uint64(max(0, most-8)) {
			return nil, fmt.Errorf("a header of %d bytes; at most %d are accepted", n, most-8)
		}
	}
	f, err := safetensors.Parse(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	var forms tensor.Forms
	for _, name := range f.Names() {
		info, err := f.Info(name)
		if err == nil && info.DType != elements[false] && info.DType != elements[true] {
			err = fmt.Errorf("tensor %.100q has elements of type %s; messages have only F32 and I64", name, info.DType)
		}
		if err != nil {
			return nil, err
		}
		forms = append(forms, tensor.Form{Name: name, Int: info.DType == elements[true], Shape: info.Shape})
	}
	if err := check(forms); err != nil {
		return nil, err
	}
	return f.Tensors()
}

// Size is the number of bytes that Encode gives.
func Size(m tensor.Map) int {
	_, n, err := Most(tensor.FormsOf(m))
	if err != nil {
		return m.Bytes()
	}
	return int(n)
}
