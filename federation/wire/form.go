package wire

import (
	"fmt"
	"slices"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Most is the size of the largest message of these forms, in bytes: of its header, and of all.
func Most(forms tensor.Forms) (head, all int64, err error) {
	entries := make([]safetensors.Entry, len(forms))
	for i, f := range forms {
		entries[i] = safetensors.Entry{Name: f.Name, DType: elements[f.Int], Shape: slices.Clone(f.Shape)}
		for j, n := range f.Shape {
			entries[i].Shape[j] = max(n, -n)
		}
	}
	return safetensors.Size(entries)
}

// DecodeAs reads what Encode wrote of tensors of these forms. Names, element types, shapes and the size of the header
// are compared before any element is read.
func DecodeAs(b []byte, forms tensor.Forms) (tensor.Map, error) {
	head, all, err := Most(forms)
	if err == nil && int64(len(b)) > all {
		err = fmt.Errorf("%d bytes of tensors; those that were asked for have at most %d", len(b), all)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	return decode(b, head, forms.Check)
}
