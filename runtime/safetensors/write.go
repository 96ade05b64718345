package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"promptfed/runtime/tensor"
)

// Write stores m as F32 and I64. The bytes depend on nothing but m and metadata: int64 tensors come first, so that every
// element is aligned to its size, then float32, each sorted by name; the header is padded with spaces to a multiple of 8.
func Write(w io.Writer, m tensor.Map, metadata map[string]string) error {
	names := m.Names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(kind(m[a]), kind(m[b])) })
	header, err := header(names, m, metadata)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(len(header)))
	out.Write(b[:])
	out.Write(header)
	for _, name := range names {
		t := m[name]
		for _, v := range t.Ints {
			binary.LittleEndian.PutUint64(b[:], uint64(v))
			out.Write(b[:])
		}
		for _, v := range t.Data {
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
			out.Write(b[:4])
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

func kind(t *tensor.Tensor) int {
	if t != nil && t.IsInt() {
		return 0
	}
	return 1
}

func header(names []string, m tensor.Map, metadata map[string]string) ([]byte, error) {
	var h bytes.Buffer
	h.WriteByte('{')
	put := func(key string, value any) {
		if h.Len() > 1 {
			h.WriteByte(',')
		}
		encode(&h, key)
		h.WriteByte(':')
		encode(&h, value)
	}
	if len(metadata) > 0 {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("safetensors: metadata %q is not valid UTF-8", k)
			}
		}
		put(metadataKey, metadata)
	}
	at := 0
	for _, name := range names {
		t := m[name]
		if err := check(name, t); err != nil {
			return nil, err
		}
		dtype := "F32"
		if t.IsInt() {
			dtype = "I64"
		}
		put(name, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{dtype, append([]int{}, t.Shape...), [2]int{at, at + t.Bytes()}})
		at += t.Bytes()
	}
	h.WriteByte('}')
	for h.Len()%8 != 0 {
		h.WriteByte(' ')
	}
	if h.Len() > maxHeader {
		return nil, fmt.Errorf("safetensors: a header of %d bytes is above the limit of %d; store fewer tensors in one file", h.Len(), maxHeader)
	}
	return h.Bytes(), nil
}

func check(name string, t *tensor.Tensor) error {
	switch {
	case name == metadataKey || !utf8.ValidString(name):
		return fmt.Errorf("safetensors: %q cannot name a tensor", name)
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

func encode(h *bytes.Buffer, v any) {
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	e.Encode(v) // strings, ints and maps of strings cannot fail
	h.Truncate(h.Len() - 1)
}
