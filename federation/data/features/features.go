package features

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"
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
	Session ort.Options // execution provider, device and graph optimization
	Workers int         // batches that are decoded and encoded at the same time
	Seed    uint64      // of augmented views
	// Progress is called with the number of finished images of one bundle, list and view; it may be nil.
	Progress func(bundle string, done, total int)
	// Free returns how many bytes the file system of a folder has left, or false if that is unknown; nil asks the
	// system.
	Free func(dir string) (bytes int64, ok bool)
}

// Images per call of the encoder, unless the encoder was exported for another number. On the CPU a call has one thread
// and several calls run at the same time; on a GPU one call has to be large.
const (
	BatchOnCPU    = 8
	batchOnDevice = 32
)

// session returns the options of the encoders' sessions. Splitting work among threads changes the last bits of
// features, so a call has one thread, whatever Session says.
func (x Extractor) session() ort.Options {
	o := x.Session.WithProvider()
	o.IntraThreads, o.InterThreads, o.Runs, o.Spinning, o.Prepack = 1, 1, 0, false, false
	return o
}

// source returns everything that the matrix of one view depends on.
func (x Extractor) source(ctx context.Context, r Request, view int) (s data.Source, err error) {
	how, err := json.Marshal(r.Bundle.Preprocess)
	if err != nil {
		return s, err
	}
	numerics, err := x.session().Fingerprint()
	if err != nil {
		return s, err
	}
	s = data.Source{Bundle: r.Bundle.Digest(), Preprocessing: string(how), View: view, Layer: r.What,
		Precision: x.Cache.Precision, Batch: x.batch(r), Numerics: numerics.Digest()}
	if view > 0 { // see rand
		s.Seed = x.Seed
		for _, e := range r.List {
			s.Names = append(s.Names, e.ID)
		}
	}
	s.Images, err = x.contents(ctx, r.List)
	return s, err
}

// contents returns the hashes of a list of images: known since the set was opened, or computed once.
func (x Extractor) contents(ctx context.Context, list []data.Example) ([]data.ContentHash, error) {
	out := make([]data.ContentHash, len(list))
	var unknown []data.Example
	var at []int
	for i, e := range list {
		if out[i] = e.ContentHash; e.ContentHash == (data.ContentHash{}) {
			unknown, at = append(unknown, e), append(at, i)
		}
	}
	if len(unknown) == 0 {
		return out, nil
	}
	read, err := x.Cache.ContentHashes(ctx, unknown, x.Workers, nil)
	for i, c := range read {
		out[at[i]] = c
	}
	return out, err
}

// encoder computes the requested features of images.
type encoder struct {
	Extractor
	Request
	session *ort.Session // nil for pixels, which pass through no tower
	done    int          // number of images, for Progress
}

// outputs maps the inputs of methods to the outputs of an image tower.
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
	o := x.session()
	o.WeightsDir, o.Outputs = r.Bundle.WeightsDir(), []string{outputs[r.What]}
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

// each passes the requested features of one view of some images to a function, in order and one batch at a time.
func (e *encoder) each(ctx context.Context, list []data.Example, view int, to func(*tensor.Tensor) error) error {
	batches := slices.Collect(slices.Chunk(list, e.batch(e.Request)))
	return data.ParallelInOrder(ctx, len(batches), e.Workers, func(ctx context.Context, i int) (*tensor.Tensor, error) {
		pixels, err := e.pixels(ctx, batches[i], view)
		if err != nil {
			return nil, err
		}
		return e.encode(ctx, pixels, len(batches[i]))
	}, func(_ int, t *tensor.Tensor) error {
		for range t.Shape[0] {
			if e.done++; e.Progress != nil {
				e.Progress(e.Bundle.Name, e.done, len(e.List))
			}
		}
		return to(t)
	})
}

// pixels returns a view of a batch of images, [B,3,S,S]; if the batch is not full, the rest is zero.
func (e *encoder) pixels(ctx context.Context, list []data.Example, view int) (*tensor.Tensor, error) {
	size := e.Bundle.Preprocess.Size
	out := tensor.New(e.batch(e.Request), 3, size, size)
	prepare := func(i int, img image.Image) ([]float32, error) {
		if view == 0 {
			return e.Bundle.Preprocess.Pixels(img), nil
		}
		return e.Bundle.Preprocess.Augment(img, e.rand(list[i], view)), nil
	}
	return out, data.Decode(ctx, list, 1, data.Refuse, preprocess.Decode, prepare, func(i int, p []float32,
		_ *data.BadImage) error {
		copy(out.Row(i).Data, p)
		return nil
	})
}

// encode returns the requested features of the first n images of a batch.
func (e *encoder) encode(ctx context.Context, p *tensor.Tensor, n int) (*tensor.Tensor, error) {
	t := p
	if e.session != nil {
		got, err := e.session.Run(ctx, tensor.Map{bundle.PixelsInput: p}, outputs[e.What])
		if err != nil {
			return nil, err
		}
		t = got[outputs[e.What]]
	}
	t = &tensor.Tensor{Shape: append([]int{n}, t.Shape[1:]...), Data: t.Data[:n*t.Len()/t.Shape[0]]}
	if e.unit() {
		L2Normalize(t)
	}
	return t, nil
}

// rand returns the random source of one view of one image.
func (x Extractor) rand(e data.Example, view int) *rand.Rand {
	return method.Rand(x.Seed, "view", strconv.Itoa(view), e.ID)
}

// L2Normalize divides every row of t [..,D] by its Euclidean norm, in place.
func L2Normalize(t *tensor.Tensor) *tensor.Tensor {
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
