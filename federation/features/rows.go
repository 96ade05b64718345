package features

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/runtime/tensor"
)

// Rows are in a file of the cache that is mapped into memory, and read when they are needed.
type Rows struct {
	rows *data.Rows
	unit bool // rows that were rounded are made unit again
}

// Read gives rows by their index.
func (r Rows) Read(index []int) (*tensor.Tensor, error) {
	t, err := r.rows.Read(index)
	if err == nil && r.unit {
		Unit(t)
	}
	return t, err
}

// Close closes the file.
func (r Rows) Close() error { return r.rows.Close() }

// Rows gives what (method.ImageInput, method.PatchesInput or method.PixelsInput) of a list, of the plain preprocessing
// when views is 0 or 1, otherwise of each of that many augmented views: unit rows [N,D] of images or [N,M,D] of
// patches, or normalised pixels [N,3,S,S], all rounded to the cache's precision. The caller closes them.
func (x Extractor) Rows(ctx context.Context, b *bundle.Bundle, list []data.Example, views int, what string) ([]Rows,
	error) {
	if what == method.PatchesInput && b.Patches() == 0 {
		return nil, fmt.Errorf("the method reads patch features, but backbone %s offers none", b.Name)
	}
	first := 1
	if views <= 1 {
		first, views = 0, 0
	}
	var out []Rows
	for view := first; view <= views; view++ {
		r, err := x.view(ctx, b, list, view, what)
		if err != nil {
			for _, r := range out {
				r.Close()
			}
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (x Extractor) view(ctx context.Context, b *bundle.Bundle, list []data.Example, view int, what string) (Rows,
	error) {
	key, err := x.key(b, list, view, what)
	if err != nil {
		return Rows{}, err
	}
	rows, ok, err := x.Cache.Open(key)
	if err != nil {
		return Rows{}, err
	}
	if !ok {
		if err := x.write(ctx, b, list, view, what, key); err != nil {
			return Rows{}, err
		}
		if rows, ok, err = x.Cache.Open(key); err != nil {
			return Rows{}, err
		}
		if !ok {
			return Rows{}, fmt.Errorf("the %s features of %s were written to the feature cache and cannot be read "+
				"back", what, b.Name)
		}
	}
	return Rows{rows: rows, unit: what != method.PixelsInput && x.Cache.Precision != data.Float}, nil
}

func (x Extractor) write(ctx context.Context, b *bundle.Bundle, list []data.Example, view int, what string,
	key data.Key) error {
	shape := []int{len(list), b.Text.EmbedDim}
	switch what {
	case method.PatchesInput:
		shape = []int{len(list), b.Patches(), b.Text.EmbedDim}
	case method.PixelsInput:
		shape = []int{len(list), 3, b.Preprocess.Size, b.Preprocess.Size}
	}
	w, err := x.Cache.Create(key, shape)
	if err != nil {
		return err
	}
	if what == method.PixelsInput {
		err = x.pixels(ctx, b, list, view, usualBatch, w.Append)
	} else {
		err = x.encode(ctx, b, list, view, outputs[what], func(t *tensor.Tensor) error { return w.Append(Unit(t)) })
	}
	if err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

// outputs of an image tower by what they are.
var outputs = map[string]string{method.ImageInput: bundle.ImageOutput, method.PatchesInput: bundle.PatchesOutput}

// ExactHeavy gives the same of a few images in full precision and in memory.
func (x Extractor) ExactHeavy(ctx context.Context, b *bundle.Bundle, list []data.Example, what string) (*tensor.Tensor,
	error) {
	var parts []*tensor.Tensor
	add := func(t *tensor.Tensor) error {
		for i := range t.Shape[0] {
			parts = append(parts, t.Row(i).Clone())
		}
		return nil
	}
	var err error
	if what == method.PixelsInput {
		err = x.pixels(ctx, b, list, 0, usualBatch, add)
	} else {
		err = x.encode(ctx, b, list, 0, outputs[what], func(t *tensor.Tensor) error { return add(Unit(t)) })
	}
	if err != nil {
		return nil, err
	}
	return tensor.Stack(slices.Clip(parts)), nil
}
