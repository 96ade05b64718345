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
	"time"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/convert"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Extractor computes features of images with bundles.
type Extractor struct {
	Cache   data.Cache
	Session ort.Options // execution provider, device and graph optimization
	Workers int         // batches that are decoded and encoded at the same time; on a device images that are decoded
	Seed    uint64      // of augmented views
	// Progress is called with the number of finished images of one bundle, list and view; it may be nil.
	Progress func(bundle string, done, total int)
	// Sessions, which may be nil, keeps the sessions of image towers for later lists of images.
	Sessions *Sessions
	// Rates, which may be nil, adds up what the computations took.
	Rates *Rates
}

// BatchOnCPU is the number of images per call of the encoder on the CPU, where a call has one thread and several calls
// run at the same time, unless the encoder was exported for another number.
const BatchOnCPU = 8

// session returns the options of the encoders' sessions. Splitting work among threads changes the last bits of
// features, so a call has one thread, whatever Session says.
func (x Extractor) session() ort.Options {
	o := x.Session.WithProvider()
	o.IntraThreads, o.Runs, o.Spinning, o.Prepack = 1, 0, false, false
	return o
}

// source returns everything that the matrix of one view depends on.
func (x Extractor) source(ctx context.Context, request Request, view int) (source data.Source, err error) {
	how, err := json.Marshal(request.Bundle.Preprocess)
	if err != nil {
		return source, err
	}

	numerics, err := x.session().Fingerprint()
	if err != nil {
		return source, err
	}

	source = data.Source{Bundle: request.Bundle.Digest(), Preprocessing: string(how), View: view, Layer: request.What,
		Precision: x.Cache.Precision, Batch: x.batch(request), Numerics: numerics.Digest()}
	if len(request.List) > manyShards*shardRows {
		source.Shard = x.shard(request)
	}

	if view > 0 { // see rand
		source.Seed = x.Seed
		for _, e := range request.List {
			source.Names = append(source.Names, e.ID)
		}
	}

	list, err := x.hashed(ctx, request.List)
	source.Images = convert.Slice(list, func(e data.Example) data.ContentHash { return e.ContentHash })
	return source, err
}

// hashed returns a list of images with their hashes: known since the set was opened, or computed once.
func (x Extractor) hashed(ctx context.Context, list []data.Example) ([]data.Example, error) {
	var unknown []data.Example
	var at []int
	for i, e := range list {
		if e.ContentHash == (data.ContentHash{}) {
			unknown, at = append(unknown, e), append(at, i)
		}
	}

	if len(unknown) == 0 {
		return list, ctx.Err()
	}

	list = slices.Clone(list)
	read, err := x.Cache.ContentHashes(ctx, unknown, x.Workers, nil)
	for i, c := range read {
		list[at[i]].ContentHash = c
	}

	return list, err
}

// encoder computes the requested features of images.
type encoder struct {
	Extractor
	Request
	*tower
	decoding, encoding meter
}

// batch is consecutive images of one view, and where their features go.
type batch struct {
	list   []data.Example
	view   int
	before int // images of the view that are finished before, for Progress
	to     func(*tensor.Tensor) error
}

// outputs maps the inputs of methods to the outputs of an image tower.
var outputs = map[string]string{method.ImageInput: bundle.ImageOutput, method.PatchesInput: bundle.PatchesOutput,
	method.TokensInput: bundle.TokensOutput}

// compute passes the requested features of all work on, in order and one batch at a time.
func (x Extractor) compute(ctx context.Context, r Request, work []batch) error {
	images := 0
	for _, w := range work {
		images += len(w.list)
	}

	if images == 0 {
		return nil
	}

	encoder, closed, err := x.encoder(r, images)
	if err != nil {
		return err
	}
	defer closed()

	var batches []batch
	for _, w := range work {
		for list := range slices.Chunk(w.list, encoder.size) {
			batches = append(batches, batch{list, w.view, w.before, w.to})
			w.before += len(list)
		}
	}

	began := time.Now()
	if encoder.packed {
		err = encoder.onDevice(ctx, batches, encoder.fill)
	} else {
		err = data.ParallelInOrder(ctx, len(batches), encoder.Workers, func(ctx context.Context, i int) (*tensor.Tensor,
			error) {
			pixels, err := encoder.pixels(ctx, batches[i:i+1], 1)
			if err != nil {
				return nil, err
			}
			return encoder.encode(ctx, pixels, len(batches[i].list))
		}, encoder.finish(batches))
	}

	if err == nil && encoder.compiled != nil && encoder.Rates != nil {
		encoder.Rates.Images += images
		encoder.Rates.Took += time.Since(began)
		encoder.Rates.Decoding += encoder.decoding.busy
		encoder.Rates.Encoding += encoder.encoding.busy
	}

	return err
}

// encoder returns the encoder for a number of images, and a function that ends its use.
func (x Extractor) encoder(r Request, images int) (built *encoder, closed func(), err error) {
	x.Workers = max(1, x.Workers)
	built = &encoder{Extractor: x, Request: r, decoding: meter{lanes: x.Workers}, encoding: meter{lanes: x.Workers}}
	if r.What == method.PixelsInput {
		built.tower = &tower{size: x.batch(r)}
		return built, func() {}, nil
	}

	built.tower, closed, err = x.Sessions.tower(r, func() (*tower, error) { return x.compile(r, images) })
	if err == nil && built.packed {
		built.encoding.lanes = built.devices()
	}

	return built, closed, err
}

// finish returns a function that passes on the features of a batch.
func (e *encoder) finish(batches []batch) func(i int, t *tensor.Tensor) error {
	return func(i int, t *tensor.Tensor) error {
		b := batches[i]
		for k := range b.list {
			if e.Progress != nil {
				e.Progress(e.Bundle.Name, b.before+k+1, len(e.List))
			}
		}
		return b.to(t)
	}
}

// pixels returns the images of one batch, [B,3,S,S], or packed [B,1,S,S]; if the batch is not full, the rest is zero.
func (e *encoder) pixels(ctx context.Context, one []batch, workers int) (*tensor.Tensor, error) {
	out, i := tensor.New(e.pixelShape()...), 0
	return out, e.decode(ctx, one, workers, func(p []float32) error {
		copy(out.Row(i).Data, p)
		i++
		return nil
	})
}

func (e *encoder) pixelShape() []int {
	side, planes := e.Bundle.Preprocess.Size, 3
	if e.packed {
		planes = 1
	}
	return []int{e.size, planes, side, side}
}

// decode passes the pixels of the images of batches to a function, in order.
func (e *encoder) decode(ctx context.Context, batches []batch, workers int, to func(p []float32) error) error {
	var list []data.Example
	var views []int
	for _, b := range batches {
		for _, example := range b.list {
			measured := example
			measured.Load = func() (image.Image, error) {
				defer e.decoding.begin()()
				return example.Unchanged(preprocess.Decode)
			}
			list, views = append(list, measured), append(views, b.view)
		}
	}

	prepare := func(i int, img image.Image) ([]float32, error) {
		defer e.decoding.begin()()
		var rng *rand.Rand
		if views[i] > 0 {
			rng = e.rand(list[i], views[i])
		}
		levels := e.Bundle.Preprocess.Levels(img, rng)
		if e.packed {
			return preprocess.Pack(levels), nil
		}
		return e.Bundle.Preprocess.Normalise(levels), nil
	}

	return data.Decode(ctx, list, workers, data.Refuse, preprocess.Decode, prepare, func(_ int, p []float32,
		_ *data.BadImage) error {
		return to(p)
	})
}

// encode returns the requested features of the first n images of a batch.
func (e *encoder) encode(ctx context.Context, p *tensor.Tensor, n int) (*tensor.Tensor, error) {
	defer e.encoding.begin()()
	out := p
	if e.compiled != nil {
		got, err := e.compiled.Run(ctx, tensor.Map{bundle.PixelsInput: p})
		if err != nil {
			return nil, err
		}
		out = got[outputs[e.What]]
	}

	out = &tensor.Tensor{Shape: append([]int{n}, out.Shape[1:]...), Data: out.Data[:n*out.Len()/out.Shape[0]]}
	if e.unit() {
		L2Normalize(out)
	}

	return out, nil
}

// rand returns the random source of one view of one image.
func (x Extractor) rand(e data.Example, view int) *rand.Rand {
	return method.Rand(x.Seed, "view", strconv.Itoa(view), e.ID)
}

// L2Normalize divides each of the rows [..,D] by its Euclidean norm, in place.
func L2Normalize(rows *tensor.Tensor) *tensor.Tensor {
	d := rows.Shape[len(rows.Shape)-1]
	for from := 0; from < len(rows.Data); from += d {
		row := rows.Data[from : from+d]
		n := tensor.Of(row, d).Norm()
		if n == 0 || math.IsNaN(n) {
			continue
		}
		for j := range row {
			row[j] = float32(float64(row[j]) / n)
		}
	}

	return rows
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
func (x Extractor) Rows(ctx context.Context, request Request) (out []Rows, err error) {
	if err := request.check(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, r := range out {
				r.Close()
			}
			out = nil
		}
	}()

	if request.List, err = x.hashed(ctx, request.List); err != nil {
		return nil, err
	}

	var work []batch
	for _, view := range request.views() {
		source, err := x.source(ctx, request, view)
		if err != nil {
			return out, err
		}

		matrix, err := x.Cache.Matrix(source.Key(), request.shape(), x.shard(request))
		if err != nil {
			return out, err
		}

		out = append(out, Rows{rows: matrix, unit: request.unit() && x.Cache.Precision != data.Float})
		missing, done := matrix.Missing(), len(request.List)
		for _, rows := range missing {
			done -= rows[1] - rows[0]
		}

		for _, rows := range missing {
			work = append(work, batch{request.List[rows[0]:rows[1]], view, done, matrix.Append})
			done += rows[1] - rows[0]
		}
	}

	return out, x.compute(ctx, request, work)
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

	return tensor.Indices(r.Views + 1)[1:]
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

// shardRows is about how many images a shard holds, and so how much work a killed process loses at most. A view of more
// than manyShards*shardRows images has about manyShards shards of more images, since each is a mapped file, and Linux
// allows a process 65,530 of these.
const shardRows, manyShards = 64, 2048

// batch returns the number of images of a batch; 0 on a device, where rows are equal up to rounding and memory decides.
func (x Extractor) batch(r Request) int {
	switch {
	case r.What == method.PixelsInput:
		return BatchOnCPU
	case x.Session.OnDevice():
		return 0
	}
	return cmp.Or(r.Bundle.Batch(), BatchOnCPU)
}

// shard returns how many images a shard holds: on the CPU whole batches, so that in an interrupted run an image still
// passes through the tower with the same other images.
func (x Extractor) shard(r Request) int {
	whole := max(1, x.batch(r))
	return max(1, max(shardRows, len(r.List)/manyShards)/whole) * whole
}

// Compute returns the features that Rows returns for the plain preprocessing, but in full precision, in memory and
// without the cache, for images that are used once.
func (x Extractor) Compute(ctx context.Context, r Request) (*tensor.Tensor, error) {
	out := &tensor.Tensor{Shape: append([]int{0}, r.shape()[1:]...)}
	return out, x.compute(ctx, r, []batch{{r.List, 0, 0, func(t *tensor.Tensor) error {
		out.Data = append(out.Data, t.Data...)
		out.Shape[0] += t.Shape[0]
		return nil
	}}})
}
