// Package features runs frozen image encoders over data sets, once: unit rows stay in a cache on disk, in half or full
// precision.
package features

import (
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
	// Progress gets how many images of one bundle, list and view are done; may be nil.
	Progress func(bundle string, done, total int)
	// Free tells how many bytes the file system of a folder has left, false where that is not known; nil asks the
	// system.
	Free func(dir string) (bytes int64, ok bool)
}

// usualBatch is the number of images that go through the encoder at a time, unless it was exported for another number.
const usualBatch = 32

// key names the matrix of one view.
func (x Extractor) key(r Request, view int) (data.Key, error) {
	how, err := json.Marshal(r.Bundle.Preprocess)
	seed := x.Seed
	if view == 0 { // nothing is drawn
		seed = 0
	}
	return data.Source{Bundle: r.Bundle.Digest(), Files: data.Digest(r.List), Preprocessing: string(how), View: view,
		Seed: seed, Layer: r.What, Precision: x.Cache.Precision}.Key(), err
}

// encoder computes what is requested of images.
type encoder struct {
	Extractor
	Request
	session *ort.Session // nil for pixels, which no tower sees
	done    int          // images, for Progress
}

// outputs of an image tower by what they are.
var outputs = map[string]string{method.ImageInput: bundle.ImageOutput, method.PatchesInput: bundle.PatchesOutput,
	method.TokensInput: bundle.TokensOutput}

func (x Extractor) open(r Request) (*encoder, error) {
	e := &encoder{Extractor: x, Request: r}
	if r.What == method.PixelsInput {
		return e, nil
	}
	tower := r.Bundle.ImageModel
	if r.What == method.TokensInput {
		tower = r.Bundle.TokensModel
	}
	model, err := tower()
	if err != nil {
		return nil, err
	}
	o := x.Session
	o.WeightsDir, o.IntraThreads, o.Prepack, o.Outputs = r.Bundle.WeightsDir(), max(1, x.Workers), false,
		[]string{outputs[r.What]}
	if e.session, err = ort.NewSession(model, o); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", r.Bundle.Name, err)
	}
	return e, nil
}

func (e *encoder) close() {
	if e.session != nil {
		e.session.Close()
	}
}

// each hands on what is requested of one view of some images, in order and a batch at a time. What it hands on is good
// until the next call.
func (e *encoder) each(ctx context.Context, list []data.Example, view int, to func(*tensor.Tensor) error) error {
	size := e.Bundle.Preprocess.Size
	var pixels []float32
	flush := func() error {
		n := len(pixels) / (3 * size * size)
		if n == 0 {
			return nil
		}
		t, err := e.encode(ctx, tensor.Of(pixels, n, 3, size, size))
		pixels = pixels[:0]
		if err != nil {
			return err
		}
		return to(t)
	}
	prepare := func(i int, img image.Image) ([]float32, error) {
		if view == 0 {
			return e.Bundle.Preprocess.Pixels(img), nil
		}
		return e.Bundle.Preprocess.Augment(img, e.rand(list[i], view)), nil
	}
	err := data.Decode(ctx, list, e.Workers, data.Refuse, preprocess.Decode, prepare, func(_ int, p []float32,
		_ *data.BadImage) error {
		pixels = append(pixels, p...)
		e.done++
		if e.Progress != nil {
			e.Progress(e.Bundle.Name, e.done, len(e.List))
		}
		if len(pixels) == e.batch()*3*size*size {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	return err
}

// encode gives what is requested of pixels [n,3,S,S].
func (e *encoder) encode(ctx context.Context, p *tensor.Tensor) (*tensor.Tensor, error) {
	if e.session == nil {
		return p, nil
	}
	n, output := p.Shape[0], outputs[e.What]
	if fixed := e.Bundle.Batch(); fixed > n { // what is missing stays zero and is not read
		p = &tensor.Tensor{Shape: append([]int{fixed}, p.Shape[1:]...), Data: append(p.Data, make([]float32,
			(fixed-n)*p.Len()/n)...)}
	}
	got, err := e.session.Run(ctx, tensor.Map{bundle.PixelsInput: p}, output)
	if err != nil {
		return nil, err
	}
	t := got[output]
	t = &tensor.Tensor{Shape: append([]int{n}, t.Shape[1:]...), Data: t.Data[:n*t.Len()/t.Shape[0]]}
	if e.unit() {
		Unit(t)
	}
	return t, nil
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
