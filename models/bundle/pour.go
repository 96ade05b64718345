package bundle

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"promptfed/models/checkpoint"
	"promptfed/runtime/tensor"
)

// item is a tensor of a checkpoint under the name it has in a bundle.
type item struct {
	name string
	from *checkpoint.Handle
}

// maxPart bounds how much of a tensor is in memory at once, in elements, where its format allows reading parts.
const maxPart = 1 << 22

// pour writes tensors as float32 to a .safetensors file, part by part, and tells where they lie in it. (safetensors.Write
// wants them all in memory.) progress gets the bytes written so far.
func pour(ctx context.Context, path, file string, items []item, progress func(int64)) (map[string]Place, error) {
	places := map[string]Place{}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	for _, it := range items {
		n := 4 * int64(tensor.Size(it.from.Shape))
		header[it.name] = map[string]any{"dtype": "F32", "shape": it.from.Shape, "data_offsets": [2]int64{at, at + n}}
		places[it.name] = Place{File: file, Offset: at, Length: n, DType: "F32", Shape: it.from.Shape}
		at += n
	}
	head, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	for len(head)%64 != 56 { // so that elements start at a multiple of 64
		head = append(head, ' ')
	}
	for name, p := range places {
		p.Offset += 8 + int64(len(head))
		places[name] = p
	}
	done := int64(0)
	err = fill(path, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(len(head)))
		out.Write(b[:])
		out.Write(head)
		for _, it := range items {
			err := parts(ctx, it.from, func(t *tensor.Tensor) error {
				for _, v := range t.Data {
					binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
					if _, err := out.Write(b[:4]); err != nil {
						return err
					}
				}
				done += 4 * int64(len(t.Data))
				progress(done)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return out.Flush()
	})
	return places, err
}

// parts reads a float tensor in pieces of at most maxPart elements where it lies in a file as it is, else at once. A value
// that is not finite is an error.
func parts(ctx context.Context, h *checkpoint.Handle, use func(*tensor.Tensor) error) error {
	rows, step := 1, 1
	if h.File != "" && len(h.Shape) > 0 {
		rows = h.Shape[0]
		step = max(1, maxPart/max(1, tensor.Size(h.Shape[1:])))
	}
	for low := 0; low < rows; low += step {
		part := h
		if step < rows {
			var err error
			if part, err = h.Rows(low, min(low+step, rows)); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t, err := part.Load()
		if err != nil {
			return err
		}
		if i := t.Finite(); i >= 0 {
			return fmt.Errorf("tensor %q holds %v: the checkpoint is damaged", h.Name, t.Data[i])
		}
		if err := use(t); err != nil {
			return err
		}
	}
	return nil
}
