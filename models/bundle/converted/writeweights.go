package converted

import (
	"context"
	"fmt"
	"io"

	"promptfed/models/checkpoint"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// maxPart limits how many elements of a tensor are in memory at once, if its format allows partial reads.
const maxPart = 1 << 22

// startsAt is the alignment of elements in files that this program writes, in bytes.
const startsAt = 64

// writeWeights writes tensors as float32 to a .safetensors file, part by part, and returns their places. progress gets
// the number of bytes written so far.
func writeWeights(ctx context.Context, path, file string, items []checkpoint.Tensor,
	progress func(int64)) (map[string]TensorLocation, error) {
	entries := make([]safetensors.Entry, len(items))
	for i, it := range items {
		entries[i] = safetensors.Entry{Name: it.Name, DType: "F32", Shape: it.Shape}
	}

	places, done := map[string]TensorLocation{}, int64(0)
	err := atomicfile.Write(path, func(w io.Writer) error {
		out, err := safetensors.NewWriter(w, entries, map[string]string{"format": "pt"}, startsAt)
		if err != nil {
			return err
		}

		for i, at := range out.Infos() {
			places[items[i].Name] = TensorLocation{File: file, Offset: at.Offset, Length: at.Length, DType: at.DType,
				Shape: at.Shape}
		}

		for _, it := range items {
			err := parts(ctx, it.Handle, func(t *tensor.Tensor) error {
				if err := out.Put(it.Name, t); err != nil {
					return err
				}
				done += int64(t.Bytes())
				progress(done)
				return nil
			})
			if err != nil {
				return err
			}
		}

		return out.Close()
	})

	return places, err
}

// parts reads a float tensor in pieces of at most maxPart elements if a file holds it unchanged, and else at once. A
// value that is not finite is an error.
func parts(ctx context.Context, handle *checkpoint.Handle, use func(*tensor.Tensor) error) error {
	rows, step := 1, 1
	if handle.File != "" && len(handle.Shape) > 0 {
		rows = handle.Shape[0]
		step = max(1, maxPart/max(1, tensor.Size(handle.Shape[1:])))
	}

	for low := 0; low < rows; low += step {
		part := handle
		if step < rows {
			var err error
			if part, err = handle.Rows(low, min(low+step, rows)); err != nil {
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

		if i := t.NonFinite(); i >= 0 {
			return fmt.Errorf("tensor %q holds %v: the checkpoint is damaged", handle.Name, t.Data[i])
		}

		if err := use(t); err != nil {
			return err
		}
	}

	return nil
}
