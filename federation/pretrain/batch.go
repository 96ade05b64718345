package pretrain

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/tensor"
)

// batches makes the batches of all steps.
type batches struct {
	cfg      Config
	tok      *tokenizer.Tokenizer
	samplers []sampler
	counts   []int // examples of each source in a batch
}

func newBatches(cfg Config, tok *tokenizer.Tokenizer) (*batches, error) {
	b := &batches{cfg: cfg, tok: tok}
	prep := preprocess.CLIP(cfg.Size)
	var shares []float64
	for i, s := range cfg.Sources {
		var with sampler = drawer{s, prep}
		if !s.synthetic() {
			l, err := openLister(s, prep)
			if err != nil {
				return nil, fmt.Errorf("sources[%d]: %w", i, err)
			}
			with = l
		}
		b.samplers = append(b.samplers, with)
		shares = append(shares, s.Share)
	}
	b.counts = apportion(cfg.Train.Batch, shares)
	return b, nil
}

// apportion splits n by shares: each share gets the integer part of its quota, and the rest goes to the largest
// remainders, in order among equals.
func apportion(n int, shares []float64) []int {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	out, rest := make([]int, len(shares)), make([]float64, len(shares))
	left := n
	for i, s := range shares {
		due := float64(n) * s / sum
		out[i] = int(math.Floor(due))
		rest[i] = due - math.Floor(due)
		left -= out[i]
	}
	order := make([]int, len(shares))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for i := range left {
		out[order[i%len(order)]]++
	}
	return out
}

// batch returns the inputs of one step, except the weights. They depend only on the seed and the step.
func (b *batches) batch(ctx context.Context, step, workers int) (tensor.Map, error) {
	n, side := b.cfg.Train.Batch, b.cfg.Size
	pixels := tensor.New(n, 3, side, side)
	captions, classes := make([]string, n), make([]string, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, workers))
	at := 0
	for source, count := range b.counts {
		for range count {
			i := at
			at++
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				rng := stream(b.cfg.Seed, "batch", step, i)
				p, err := b.samplers[source].sample(rng, writer{b.cfg.Careless, b.fits})
				if err != nil {
					return fmt.Errorf("sources[%d]: %w", source, err)
				}
				copy(pixels.Data[i*len(p.pixels):], p.pixels)
				captions[i], classes[i] = p.caption, p.class
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	m, err := b.texts(captions)
	if err != nil {
		return nil, err
	}
	m[inPixels], m[inTargets] = pixels, Targets(captions, classes, b.cfg.Train.ByClass)
	return m, nil
}

func (b *batches) fits(caption string) bool {
	ids, err := b.tok.Encode(caption)
	return err == nil && len(ids)+2 <= b.cfg.Caption
}

// texts returns the token ids and the ends of captions.
func (b *batches) texts(captions []string) (tensor.Map, error) {
	ids, end, err := sequences(b.tok, captions, b.cfg.Caption)
	return tensor.Map{inTokens: ids, inEnd: end}, err
}

// sequences tokenises texts: it returns ids [N,length] and the position of each end [N].
func sequences(tok *tokenizer.Tokenizer, texts []string, length int) (ids, end *tensor.Tensor, err error) {
	ids = tensor.OfInts(make([]int64, 0, len(texts)*length), 0)
	end = tensor.OfInts(make([]int64, len(texts)), len(texts))
	for i, text := range texts {
		seq, err := tok.Sequence(text, length)
		if err != nil {
			return nil, nil, err
		}
		end.Ints[i] = int64(slices.Index(seq, int64(tok.EOT())))
		ids.Ints = append(ids.Ints, seq...)
	}
	ids.Shape = []int{len(texts), length}
	return ids, end, nil
}
