package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"promptfed/runtime/tensor"
)

// Write writes m as F32 and I64. The bytes depend only on m and metadata. int64 tensors come first, so that every
// element is aligned to its size, then float32 tensors, each sorted by name; elements start at a multiple of 8.
func Write(w io.Writer, m tensor.Map, metadata map[string]string) error {
	return write(w, m, metadata, "F32")
}

// Size returns the number of bytes that Write writes for tensors of these names, element types and shapes: for the
// header with the eight bytes before it, and in total. The order of tensors does not matter.
func Size(tensors []Entry) (head, all int64, err error) {
	entries := slices.Clone(tensors)
	slices.SortFunc(entries, inOrder)
	infos, err := layOut(entries)
	if err != nil {
		return 0, 0, err
	}

	text, err := header(entries, infos, nil, 8)
	if err != nil {
		return 0, 0, err
	}

	head = 8 + int64(len(text))
	all = head
	for _, x := range infos {
		all += x.Length
	}

	return head, all, nil
}

func write(w io.Writer, tensors tensor.Map, metadata map[string]string, floats string) error {
	entries, err := declare(tensors, floats)
	if err != nil {
		return err
	}

	out, err := NewWriter(w, entries, metadata, 8)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if err := out.Put(e.Name, tensors[e.Name]); err != nil {
			return err
		}
	}

	return out.Close()
}

func declare(m tensor.Map, floats string) ([]Entry, error) {
	entries := make([]Entry, 0, len(m))
	for _, name := range m.Names() {
		values := m[name]
		switch {
		case values == nil:
			return nil, fmt.Errorf("safetensors: tensor %q is nil", name)
		case values.Data != nil && values.Ints != nil:
			return nil, fmt.Errorf("safetensors: tensor %q holds floats and integers at once", name)
		case values.Len() != tensor.Size(values.Shape):
			return nil, fmt.Errorf("safetensors: tensor %q has %d values for shape %v", name, values.Len(),
				values.Shape)
		}

		e := Entry{Name: name, DType: floats, Shape: values.Shape}
		if values.IsInt() {
			e.DType = "I64"
		}

		entries = append(entries, e)
	}

	slices.SortFunc(entries, inOrder)
	return entries, nil
}

// inOrder compares two tensors in the order of Write.
func inOrder(a, b Entry) int { // I64 comes before F32 or F16, of which a file has one
	return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
}
