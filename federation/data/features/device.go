package features

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Images per call on a device: as many as fit, from leastBatch to mostBatch by powers of two, or usualBatch where its
// memory or the tower's need is unknown. All calls have as many, so that a device compiles for one size.
const leastBatch, usualBatch, mostBatch = 8, 128, 256

// Of each device, callsAtOnce batches are in calls, so that one is copied while another is computed, and
// bufferedBatches hold pixels, those in calls included.
const callsAtOnce, bufferedBatches = 2, 3

// tower is the image tower of a bundle, compiled for one kind of features.
type tower struct {
	compiled *ort.Session // nil for pixels, which pass through no tower
	size     int          // images of a call
	packed   bool         // it is on a device, and unpacks pixels there (preprocess.Pack)
}

// compile compiles the tower for a request. Where it computes no more than so many images, a call on a device is not
// much larger.
func (x Extractor) compile(request Request, images int) (*tower, error) {
	options := x.session()
	options.WeightsDir, options.Outputs = request.Bundle.WeightsDir(), []string{outputs[request.What]}
	vision := &tower{packed: options.OnDevice(), size: x.batch(request)}
	model, err := request.model(options)
	if err == nil {
		vision.compiled, err = ort.NewSession(model, options)
	}

	if err != nil {
		return vision, fmt.Errorf("bundle %s: %w", request.Bundle.Name, err)
	}

	if vision.packed {
		memory := vision.compiled.FreeMemory() / 2
		if limit := options.MemoryLimit; limit > 0 && (memory <= 0 || limit < memory) {
			memory = limit
		}
		vision.size = cmp.Or(request.Bundle.Batch(), batchWithin(memory/callsAtOnce,
			int64(request.Bundle.Vision.FeatureBytes())))
		if x.Sessions == nil && request.Bundle.Batch() == 0 {
			vision.size = min(vision.size, max(leastBatch, 1<<bits.Len(uint(images-1))))
		}
	}

	return vision, nil
}

// batchWithin returns the images of a call within so many bytes of memory; 0 bytes are unknown.
func batchWithin(memory, image int64) int {
	if memory <= 0 || image <= 0 {
		return usualBatch
	}

	n := mostBatch
	for n > leastBatch && int64(n)*image > memory {
		n /= 2
	}

	return n
}

// GraphFor returns an empty graph for encoding images in sessions with these options.
func GraphFor(o ort.Options) *graph.Graph {
	g := graph.New()
	if o.OnDevice() {
		g.UseKernels(min(o.Kernels(), graph.DeviceKernels))
	}

	if o.LowProducts() {
		g.FuseAttention()
	}

	return g
}

// model returns the graph from pixels, packed on a device, to the requested features.
func (r Request) model(o ort.Options) (*onnx.ModelProto, error) {
	packed := o.OnDevice()
	tokens := r.What == method.TokensInput
	switch {
	case !packed && tokens:
		return r.Bundle.TokensModel()
	case !packed:
		return r.Bundle.ImageModel()
	}

	g, side, batch := GraphFor(o), graph.StaticDim(r.Bundle.Preprocess.Size), graph.Sym("B")
	if n := r.Bundle.Batch(); n > 0 {
		batch = graph.StaticDim(n)
	}

	pixels := r.Bundle.Preprocess.Unpack(g.Input(bundle.PixelsInput, graph.Float, graph.Shape{batch, graph.StaticDim(1),
		side, side}))
	out, patches, err := r.Bundle.Image(g, pixels, clip.VisionPrompts{LastTokens: tokens})
	if err != nil {
		return nil, err
	}

	if r.What == method.PatchesInput {
		out = patches
	}

	return graph.Model(graph.Output{Name: outputs[r.What], Node: out})
}

// Sessions keeps image towers compiled. The zero value is empty.
type Sessions struct {
	mu     sync.Mutex
	towers map[towerKey]*tower
}

type towerKey struct {
	bundle *bundle.Bundle
	what   string
}

// tower returns the tower of a request, and a function that ends its use. Without Sessions this closes it.
func (s *Sessions) tower(r Request, compile func() (*tower, error)) (vision *tower, closed func(), err error) {
	if s == nil {
		vision, err = compile()
		return vision, func() { vision.compiled.Close() }, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	key := towerKey{r.Bundle, r.What}
	if vision = s.towers[key]; vision == nil {
		if vision, err = compile(); err == nil {
			if s.towers == nil {
				s.towers = map[towerKey]*tower{}
			}
			s.towers[key] = vision
		}
	}

	return vision, func() {}, err
}

// Close closes all sessions. Later requests open them again.
func (s *Sessions) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*ort.Session
	for _, t := range s.towers {
		all = append(all, t.compiled)
	}

	s.towers = nil
	return ort.CloseAll(all...)
}

func (x Extractor) devices() int { return max(1, x.Session.Devices) }

// feed is what decoding hands to a device: batches of pixels, or what went wrong, in buffers that come back.
type feed struct {
	free  chan *tensor.Tensor // nil stands for a buffer that nobody has used yet
	ready []chan decoded      // for each batch
}

type decoded struct {
	pixels *tensor.Tensor
	err    error
}

// onDevice passes on the features of batches whose pixels fill supplies, in their order, while earlier batches are
// encoded. An error of fill comes after the features of the batches before it.
func (e *encoder) onDevice(ctx context.Context, batches []batch, fill func(context.Context, []batch, feed)) error {
	queue := feed{make(chan *tensor.Tensor, bufferedBatches*e.devices()), make([]chan decoded, len(batches))}
	for range cap(queue.free) {
		queue.free <- nil
	}

	for i := range queue.ready {
		queue.ready[i] = make(chan decoded, 1)
	}

	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		fill(ctx, batches, queue)
		return nil
	})

	all.Go(func() error {
		return data.ParallelInOrder(ctx, len(batches), callsAtOnce*e.devices(), func(ctx context.Context, i int) (
			*tensor.Tensor, error) {
			select {
			case d := <-queue.ready[i]:
				if d.err != nil {
					return nil, d.err
				}
				defer func() { queue.free <- d.pixels }()
				return e.encode(ctx, d.pixels, len(batches[i].list))
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, e.finish(batches))
	})

	return all.Wait()
}

// fill decodes the images of all batches, whose borders no core waits at.
func (e *encoder) fill(ctx context.Context, batches []batch, queue feed) {
	var into *tensor.Tensor
	at, row := 0, 0
	err := e.decode(ctx, batches, e.Workers, func(pixels []float32) error {
		if row == 0 {
			select {
			case into = <-queue.free:
			case <-ctx.Done():
				return ctx.Err()
			}
			if into == nil {
				into = tensor.New(e.pixelShape()...)
			}
		}

		copy(into.Row(row).Data, pixels)
		if row++; row == len(batches[at].list) {
			clear(into.Data[row*len(pixels):])
			queue.ready[at] <- decoded{pixels: into}
			at, row = at+1, 0
		}

		return nil
	})

	if err != nil && at < len(batches) {
		queue.ready[at] <- decoded{err: err}
	}
}

// FromMemory returns the size of a device's batches, and a function that passes the first batch of a list, which must
// be as long, through the tower so many times from pixels in memory: as fast as a run where decoding takes no time.
// x.Sessions keeps the tower open.
func (x Extractor) FromMemory(ctx context.Context, r Request) (images int, again func(ctx context.Context,
	times int) error, err error) {
	e, _, err := x.encoder(r, mostBatch)
	if err != nil {
		return 0, nil, err
	}

	one := []batch{{list: r.List[:e.size], to: func(*tensor.Tensor) error { return nil }}}
	pixels, err := e.pixels(ctx, one, e.Workers)
	return e.size, func(ctx context.Context, times int) error {
		return e.onDevice(ctx, slices.Repeat(one, times), func(ctx context.Context, _ []batch, f feed) {
			for i := range f.ready {
				select {
				case <-f.free:
					f.ready[i] <- decoded{pixels: pixels}
				case <-ctx.Done():
					return
				}
			}
		})
	}, err
}
