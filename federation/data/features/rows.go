package features

import (
	"cmp"
	"context"
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Request asks for features: What (method.ImageInput or another input that a method may read) of a list of images. If
// Views is 0 or 1, the images get the plain preprocessing; otherwise there are Views augmented views.
type Request struct {
	Bundle *bundle.Bundle
	List   []data.Example
	Views  int
	What   string
}

// Rows is the matrix of one view. Its rows lie in files of the cache that are mapped into memory, and are read on
// demand.
type Rows struct {
	rows *data.Matrix
	unit bool // rows were rounded and have to be normalised again
}

// Read returns rows by their indices.
func (r Rows) Read(index []int) (*tensor.Tensor, error) {
	t, err := r.rows.Read(index)
	if err == nil && r.unit {
		L2Normalize(t)
	}
	return t, err
}

// Close closes the files.
func (r Rows) Close() error { return r.rows.Close() }

// Rows returns the requested features, one matrix for each view: unit rows [N,D] of images or [N,M,D] of patches,
// tokens [N,T,v] after the tower's last block, or normalised pixels [N,3,S,S], all rounded to the cache's precision.
// Rows that the cache lacks are computed and written in shards, so a stopped process keeps its finished shards. The
// caller closes the matrices.
func (x Extractor) Rows(ctx context.Context, r Request) ([]Rows, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	var out []Rows
	for _, view := range r.views() {
		rows, err := x.view(ctx, r, view)
		if err != nil {
			for _, r := range out {
				r.Close()
			}
			return nil, err
		}
		out = append(out, rows)
	}
	return out, nil
}

func (r Request) check() error {
	switch {
	case r.What == method.PatchesInput && r.Bundle.Patches() == 0:
		return fmt.Errorf("the method reads patch features, but backbone %s has none", r.Bundle.Name)
	case r.What == method.TokensInput && r.Bundle.Tokens() == 0:
		return fmt.Errorf("the method reads the last tokens of images, but backbone %s has none", r.Bundle.Name)
	}
	return nil
}

// views returns the numbers of the views, 0 for the plain one.
func (r Request) views() []int {
	if r.Views <= 1 {
		return []int{0}
	}
	out := make([]int, r.Views)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// shape returns the shape of the matrix of one view.
func (r Request) shape() []int {
	switch n := len(r.List); r.What {
	case method.PatchesInput:
		return []int{n, r.Bundle.Patches(), r.Bundle.Text.EmbedDim}
	case method.TokensInput:
		return []int{n, r.Bundle.Tokens(), r.Bundle.Vision.Width}
	case method.PixelsInput:
		return []int{n, 3, r.Bundle.Preprocess.Size, r.Bundle.Preprocess.Size}
	default:
		return []int{n, r.Bundle.Text.EmbedDim}
	}
}

// unit reports whether rows are normalised.
func (r Request) unit() bool { return r.What == method.ImageInput || r.What == method.PatchesInput }

// shardRows is about how many images a shard holds, and so how much work a killed process loses at most.
const shardRows = 64

// batch returns the number of images of a batch.
func (x Extractor) batch(r Request) int {
	usual := BatchOnCPU
	if x.Session.WithProvider().Provider != ort.CPU {
		usual = batchOnDevice
	}
	if r.What == method.PixelsInput {
		return usual
	}
	return cmp.Or(r.Bundle.Batch(), usual)
}

// shard returns how many images a shard holds: whole batches, so that in an interrupted run an image still passes
// through the tower with the same other images.
func (x Extractor) shard(r Request) int { return max(1, shardRows/x.batch(r)) * x.batch(r) }

// view returns the matrix of one view after it computed the rows that the cache lacks.
func (x Extractor) view(ctx context.Context, r Request, view int) (Rows, error) {
	source, err := x.source(ctx, r, view)
	if err != nil {
		return Rows{}, err
	}
	m, err := x.Cache.Matrix(source.Key(), r.shape(), x.shard(r))
	if err != nil {
		return Rows{}, err
	}
	if err := x.fill(ctx, r, view, m); err != nil {
		m.Close()
		return Rows{}, err
	}
	return Rows{rows: m, unit: r.unit() && x.Cache.Precision != data.Float}, nil
}

// fill computes the missing rows of a matrix.
func (x Extractor) fill(ctx context.Context, r Request, view int, m *data.Matrix) error {
	missing := m.Missing()
	if len(missing) == 0 {
		return nil
	}
	e, err := x.open(r)
	if err != nil {
		return err
	}
	defer e.close()
	e.done = len(r.List)
	for _, rows := range missing {
		e.done -= rows[1] - rows[0]
	}
	for _, rows := range missing {
		if err := e.each(ctx, r.List[rows[0]:rows[1]], view, m.Append); err != nil {
			return err
		}
	}
	return nil
}

// Compute returns the features that Rows returns for the plain preprocessing, but in full precision, in memory and
// without the cache, for images that are used once.
func (x Extractor) Compute(ctx context.Context, r Request) (*tensor.Tensor, error) {
	e, err := x.open(r)
	if err != nil {
		return nil, err
	}
	defer e.close()
	out := &tensor.Tensor{Shape: append([]int{0}, r.shape()[1:]...)}
	return out, e.each(ctx, r.List, 0, func(t *tensor.Tensor) error {
		out.Data = append(out.Data, t.Data...)
		out.Shape[0] += t.Shape[0]
		return nil
	})
}
