package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/x448/float16"

	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// Entry declares a tensor before its values are known. DType is F32, I64 or F16 (floats rounded to half precision).
type Entry struct {
	Name, DType string
	Shape       []int
}

// Writer writes a file whose tensors need not be in memory at the same time: first the header with the declared
// tensors, then the values. After an error every call returns that error.
type Writer struct {
	out     *bufio.Writer
	entries []Entry
	infos   []Info
	at      int   // index of the current tensor
	left    int64 // bytes of it that are not written yet
	scratch []byte
	err     error
}

// NewWriter writes the header. Tensors are in the order of entries. Their elements start at a multiple of align bytes,
// which is a multiple of 8.
func NewWriter(w io.Writer, entries []Entry, metadata map[string]string, align int) (*Writer, error) {
	if align < 8 || align%8 != 0 || align > maxAlign {
		return nil, fmt.Errorf("safetensors: alignment to %d bytes, want a multiple of 8 up to %d", align, maxAlign)
	}

	infos, err := layOut(entries)
	if err != nil {
		return nil, err
	}

	header, err := header(entries, infos, metadata, align)
	if err != nil {
		return nil, err
	}

	for i := range infos {
		infos[i].Offset += 8 + int64(len(header))
	}

	out := bufio.NewWriterSize(w, 1<<16)
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(header)))
	out.Write(size[:]) // Flush returns the error
	out.Write(header)
	s := &Writer{out: out, entries: slices.Clone(entries), infos: infos, at: -1, scratch: make([]byte, 0, 8*chunk)}
	s.next()
	return s, nil
}

const maxAlign = 1 << 16

// chunk is the number of elements that are encoded at once.
const chunk = 1 << 12

// Infos returns the places of the tensors in the file, in the declared order.
func (w *Writer) Infos() []Info { return slices.Clone(w.infos) }

// Put writes the next values of a tensor: all of them, or a part of any shape. Tensors come in the declared order, each
// one completely before the next; one without elements may be omitted.
func (w *Writer) Put(name string, values *tensor.Tensor) error {
	if w.err != nil {
		return w.err
	}

	for w.left == 0 && w.at < len(w.entries) && w.entries[w.at].Name != name {
		w.next()
	}

	switch {
	case w.at == len(w.entries):
		return w.fail("tensor %q was not declared, or a later tensor has begun", name)
	case w.entries[w.at].Name != name:
		return w.fail("tensor %q lacks %d bytes, so %q cannot begin", w.entries[w.at].Name, w.left, name)
	case values == nil || values.Data != nil && values.Ints != nil:
		return w.fail("tensor %q: want floats or integers", name)
	case values.Len() > 0 && values.IsInt() != (w.entries[w.at].DType == "I64"):
		return w.fail("tensor %q is %v, was declared as %s", name, values, w.entries[w.at].DType)
	}

	if w.left -= int64(values.Len()) * int64(ElementSize(w.entries[w.at].DType)); w.left < 0 {
		return w.fail("tensor %q has more values than the shape %v that was declared", name, w.entries[w.at].Shape)
	}

	for part := range slices.Chunk(values.Ints, chunk) {
		b, _ := binary.Append(w.scratch[:0], le, part) // numbers cannot fail
		w.out.Write(b)
	}

	half := w.entries[w.at].DType == "F16"
	for part := range slices.Chunk(values.Data, chunk) {
		encoded := w.scratch[:0]
		for _, v := range part {
			if !half {
				encoded = binary.LittleEndian.AppendUint32(encoded, math.Float32bits(v))
				continue
			}
			h := float16.Fromfloat32(v)
			if h.IsInf(0) && !math.IsInf(float64(v), 0) {
				return w.fail("tensor %q: %g is too large for half precision", name, v)
			}
			encoded = binary.LittleEndian.AppendUint16(encoded, uint16(h))
		}
		w.out.Write(encoded)
	}

	if _, err := w.out.Write(nil); err != nil {
		return w.fail("%w", err)
	}

	return nil
}

// Close ends the file. Missing values are an error. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}

	for w.left == 0 && w.at < len(w.entries) {
		w.next()
	}

	if w.at < len(w.entries) {
		return w.fail("tensor %q lacks %d bytes", w.entries[w.at].Name, w.left)
	}

	if err := w.out.Flush(); err != nil {
		return w.fail("%w", err)
	}

	return nil
}

func (w *Writer) next() {
	w.at++
	if w.left = 0; w.at < len(w.infos) {
		w.left = w.infos[w.at].Length
	}
}

func (w *Writer) fail(format string, args ...any) error {
	w.err = fmt.Errorf("safetensors: "+format, args...)
	return w.err
}

// layOut places tensors next to each other; offsets count from the end of the header.
func layOut(entries []Entry) ([]Info, error) {
	out, seen, at := make([]Info, len(entries)), map[string]bool{}, int64(0)
	for i, entry := range entries {
		switch {
		case entry.Name == metadataKey || !utf8.ValidString(entry.Name):
			return nil, fmt.Errorf("safetensors: %q cannot name a tensor", entry.Name)
		case len(entry.Name) > maxName:
			return nil, fmt.Errorf("safetensors: a tensor has a name of %d bytes, the limit is %d", len(entry.Name),
				maxName)
		case seen[entry.Name]:
			return nil, fmt.Errorf("safetensors: two tensors are named %q", entry.Name)
		case !slices.Contains([]string{"F32", "F16", "I64"}, entry.DType):
			return nil, fmt.Errorf("safetensors: tensor %q is declared as %q, want F32, F16 or I64", entry.Name,
				entry.DType)
		}

		seen[entry.Name] = true
		shape := convert.Slice(entry.Shape, func(d int) int64 { return int64(d) })
		n, err := byteSize(shape, ElementSize(entry.DType))
		if err == nil && n > math.MaxInt64/2-at {
			err = fmt.Errorf("it ends beyond 2^62 bytes")
		}

		if err != nil {
			return nil, fmt.Errorf("safetensors: tensor %q: %w", entry.Name, err)
		}

		out[i] = Info{DType: entry.DType, Shape: append([]int{}, entry.Shape...), Offset: at, Length: n}
		at += n
	}

	return out, nil
}

// header returns the JSON of a file, padded with spaces so that the data start at a multiple of align.
func header(entries []Entry, infos []Info, metadata map[string]string, align int) ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	put := func(key string, value any) {
		if text.Len() > 1 {
			text.WriteByte(',')
		}
		encode(&text, key)
		text.WriteByte(':')
		encode(&text, value)
	}

	if len(metadata) > 0 {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("safetensors: metadata %q is not valid UTF-8", k)
			}
		}
		put(metadataKey, metadata)
	}

	for i, x := range infos {
		put(entries[i].Name, struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{x.DType, x.Shape, [2]int64{x.Offset, x.Offset + x.Length}})
	}

	text.WriteByte('}')
	for (8+text.Len())%align != 0 {
		text.WriteByte(' ')
	}

	if text.Len() > maxHeader {
		return nil, fmt.Errorf("safetensors: a header of %d bytes is above the limit of %d; store fewer tensors in "+
			"one file", text.Len(), maxHeader)
	}

	return text.Bytes(), nil
}

func encode(h *bytes.Buffer, v any) {
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	e.Encode(v) // strings, ints and maps of strings cannot fail
	h.Truncate(h.Len() - 1)
}
