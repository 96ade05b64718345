package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"promptfed/runtime/tensor"
)

// Write stores m as F32 and I64. The bytes depend on nothing but m and metadata: int64 tensors come first, so that
// every element is aligned to its size, then float32, each sorted by name; elements start at a multiple of 8.
func Write(w io.Writer, m tensor.Map, metadata map[string]string) error {
	return write(w, m, metadata, "F32")
}

// Size is the number of bytes that Write gives, without writing them.
func Size(m tensor.Map, metadata map[string]string) (int64, error) {
	entries, err := declare(m, "F32")
	if err != nil {
		return 0, err
	}
	infos, err := layOut(entries)
	if err != nil {
		return 0, err
	}
	head, err := header(entries, infos, metadata, 8)
	if err != nil {
		return 0, err
	}
	n := 8 + int64(len(head))
	for _, x := range infos {
		n += x.Length
	}
	return n, nil
}

func write(w io.Writer, m tensor.Map, metadata map[string]string, floats string) error {
	entries, err := declare(m, floats)
	if err != nil {
		return err
	}
	out, err := NewWriter(w, entries, metadata, 8)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := out.Put(e.Name, m[e.Name]); err != nil {
			return err
		}
	}
	return out.Close()
}

// declare lists tensors in the order that they are written in.
func declare(m tensor.Map, floats string) ([]Entry, error) {
	names := m.Names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(kind(m[a]), kind(m[b])) })
	entries := make([]Entry, len(names))
	for i, name := range names {
		t := m[name]
		if err := check(name, t); err != nil {
			return nil, err
		}
		entries[i] = Entry{Name: name, DType: floats, Shape: t.Shape}
		if t.IsInt() {
			entries[i].DType = "I64"
		}
	}
	return entries, nil
}

func kind(t *tensor.Tensor) int {
	if t != nil && t.IsInt() {
		return 0
	}
	return 1
}

func check(name string, t *tensor.Tensor) error {
	switch {
	case t == nil:
		return fmt.Errorf("safetensors: tensor %q is nil", name)
	case t.Data != nil && t.Ints != nil:
		return fmt.Errorf("safetensors: tensor %q holds floats and integers at once", name)
	}
	n := 1
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("safetensors: tensor %q has shape %v", name, t.Shape)
		}
		n *= d
	}
	if n != t.Len() {
		return fmt.Errorf("safetensors: tensor %q has %d values for shape %v", name, t.Len(), t.Shape)
	}
	return nil
}
