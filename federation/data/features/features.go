package features

import (
	"cmp"
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
	o.IntraThreads, o.Runs, o.Spinning, o.Prepack = 1, 0, false, false
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
