// Package features runs frozen image encoders over data sets, once: unit rows stay in a cache on disk, in half
// precision or as they were computed.
package features

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Extractor computes features of images with bundles.
type Extractor struct {
	Cache   data.Cache
	Session ort.Options // provider and device; threads are set from Workers
	Workers int         // images decoded at a time, and threads of the encoder
	Seed    uint64      // of augmented views
	// Progress is told how many of the images of one bundle, list and view are done; may be nil.
	Progress func(bundle string, done, total int)
}

// usualBatch is the number of images that go through the encoder at a time, unless it was exported for another number.
const usualBatch = 32

// key names what is cached of one layer.
func (x Extractor) key(b *bundle.Bundle, list []data.Example, view int, layer string) (data.Key, error) {
	how, err := json.Marshal(b.Preprocess)
	seed := x.Seed
	if view == 0 { // nothing is drawn
		seed = 0
	}
	return data.Source{Bundle: b.Digest(), Files: data.Digest(list), Preprocessing: string(how), View: view, Seed: seed,
		Layer:     layer,
		Precision: x.Cache.Precision}.Key(), err
}

// Exact gives the image features [N,D] of a list, unit rows of the plain preprocessing, in full precision: computed
// anew, for images that are seen once.
func (x Extractor) Exact(ctx context.Context, b *bundle.Bundle, list []data.Example) (*tensor.Tensor, error) {
	return x.compute(ctx, b, list, 0)
}

// compute runs the encoder over the images in order.
func (x Extractor) compute(ctx context.Context, b *bundle.Bundle, list []data.Example, view int) (*tensor.Tensor,
	error) {
	out := &tensor.Tensor{Shape: []int{0, b.Text.EmbedDim}}
	err := x.encode(ctx, b, list, view, bundle.ImageOutput, func(t *tensor.Tensor) error {
		out.Data = append(out.Data, Unit(t).Data...)
		out.Shape[0] += t.Shape[0]
		return nil
	})
	return out, err
}

// encode runs the encoder over the images in order and hands on one of its outputs, some rows at a time.
func (x Extractor) encode(ctx context.Context, b *bundle.Bundle, list []data.Example, view int, output string,
	to func(*tensor.Tensor) error) error {
	model, err := b.ImageModel()
	if err != nil {
		return err
	}
	o := x.Session
	o.WeightsDir, o.IntraThreads, o.Prepack, o.Outputs = b.WeightsDir(), max(1, x.Workers), false, []string{output}
	session, err := ort.NewSession(model, o)
	if err != nil {
		return fmt.Errorf("bundle %s: %w", b.Name, err)
	}
	defer session.Close()
	return x.pixels(ctx, b, list, view, cmp.Or(b.Batch(), usualBatch), func(p *tensor.Tensor) error {
		n := p.Shape[0]
		if fixed := b.Batch(); fixed > n { // what is missing stays zero and is not read
			p = &tensor.Tensor{Shape: append([]int{fixed}, p.Shape[1:]...), Data: append(p.Data, make([]float32,
				(fixed-n)*p.Len()/n)...)}
		}
		got, err := session.Run(ctx, tensor.Map{bundle.PixelsInput: p}, output)
		if err != nil {
			return err
		}
		t := got[output]
		return to(&tensor.Tensor{Shape: append([]int{n}, t.Shape[1:]...), Data: t.Data[:n*t.Len()/t.Shape[0]]})
	})
}

// pixels prepares the images in order and hands them on, up to batch at a time, [B,3,S,S]. What it hands on is good
// until the next call.
func (x Extractor) pixels(ctx context.Context, b *bundle.Bundle, list []data.Example, view, batch int,
	to func(*tensor.Tensor) error) error {
	size := b.Preprocess.Size
	var pixels []float32
	flush := func() error {
		n := len(pixels) / (3 * size * size)
		if n == 0 {
			return nil
		}
		err := to(tensor.Of(pixels, n, 3, size, size))
		pixels = pixels[:0]
		return err
	}
	prepare := func(i int, img image.Image) ([]float32, error) {
		if view == 0 {
			return b.Preprocess.Pixels(img), nil
		}
		return b.Preprocess.Augment(img, x.rand(list[i], view)), nil
	}
	err := data.Decode(ctx, list, x.Workers, data.Refuse, preprocess.Decode, prepare, func(i int, p []float32,
		_ *data.BadImage) error {
		pixels = append(pixels, p...)
		if x.Progress != nil {
			x.Progress(b.Name, i+1, len(list))
		}
		if len(pixels) == batch*3*size*size {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	return err
}

// rand is the random source of one view of one image.
func (x Extractor) rand(e data.Example, view int) *rand.Rand {
	return method.Rand(x.Seed, "view", strconv.Itoa(view), e.ID)
}

// Unit divides every row of t [..,D] by its Euclidean norm, in place.
func Unit(t *tensor.Tensor) *tensor.Tensor {
	d := t.Shape[len(t.Shape)-1]
	for from := 0; from < len(t.Data); from += d {
		row := t.Data[from : from+d]
		n := tensor.Of(row, d).Norm()
		if n == 0 || math.IsNaN(n) {
			continue
		}
		for j := range row {
			row[j] = float32(float64(row[j]) / n)
		}
	}
	return t
}
