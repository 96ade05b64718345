package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// EncodeTensors encodes tensors as a safetensors file. Equal tensors have equal bytes.
func EncodeTensors(m tensor.Map) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(m.Bytes() + 1024)
	if err := safetensors.Write(&b, m, nil); err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeTensors reads the bytes of EncodeTensors. It refuses damaged bytes; element types that EncodeTensors does not
// write, since their tensors take up to eight times their size in memory; and headers of more than 2 MiB, since they
// take more than that.
func DecodeTensors(b []byte) (tensor.Map, error) {
	return decode(b, maxHeader, func(tensor.Specs) error { return nil })
}

// maxHeader is the size of the largest header that DecodeTensors reads, in bytes.
const maxHeader = 2 << 20

// elements are the element types that EncodeTensors writes, by tensor.Spec.Int.
var elements = map[bool]string{false: "F32", true: "I64"}

// decode reads tensors whose forms check accepts. The size of their header is limited, in bytes.
func decode(b []byte, most int64, check func(tensor.Specs) error) (m tensor.Map, err error) {
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
	var forms tensor.Specs
	for _, name := range f.Names() {
		info, err := f.Info(name)
		if err == nil && info.DType != elements[false] && info.DType != elements[true] {
			err = fmt.Errorf("tensor %.100q has elements of type %s; messages have only F32 and I64", name, info.DType)
		}
		if err != nil {
			return nil, err
		}
		forms = append(forms, tensor.Spec{Name: name, Int: info.DType == elements[true], Shape: info.Shape})
	}
	if err := check(forms); err != nil {
		return nil, err
	}
	return f.Tensors()
}

func EncodedSize(m tensor.Map) int {
	_, n, err := MaxEncodedSize(tensor.SpecsOf(m))
	if err != nil {
		return m.Bytes()
	}
	return int(n)
}

// MaxEncodedSize returns the sizes of the largest encoded tensors of these forms, in bytes: of their header, and of
// header and tensors together.
func MaxEncodedSize(forms tensor.Specs) (head, all int64, err error) {
	entries := make([]safetensors.Entry, len(forms))
	for i, f := range forms {
		entries[i] = safetensors.Entry{Name: f.Name, DType: elements[f.Int], Shape: slices.Clone(f.Shape)}
		for j, n := range f.Shape {
			entries[i].Shape[j] = max(n, -n)
		}
	}
	return safetensors.Size(entries)
}

// DecodeTensorsAs reads the bytes of EncodeTensors, of tensors of these forms. It compares names, element types, shapes
// and the size of the header before it reads any element.
func DecodeTensorsAs(b []byte, forms tensor.Specs) (tensor.Map, error) {
	head, all, err := MaxEncodedSize(forms)
	if err == nil && int64(len(b)) > all {
		err = fmt.Errorf("%d bytes of tensors; those that were asked for have at most %d", len(b), all)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	return decode(b, head, forms.Check)
}
