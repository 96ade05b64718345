package pretrain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
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
	batches := &batches{cfg: cfg, tok: tok}
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
		batches.samplers = append(batches.samplers, with)
		shares = append(shares, s.Share)
	}

	batches.counts = apportion(cfg.Train.Batch, shares)
	return batches, nil
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
		out[i] = int(due)
		rest[i] = due - float64(out[i])
		left -= out[i]
	}

	order := tensor.Order(len(shares), func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, i := range order[:left] {
		out[i]++
	}

	return out
}

// batch returns the inputs of one step, except the weights. They depend only on the seed and the step.
func (b *batches) batch(ctx context.Context, step, workers int) (tensor.Map, error) {
	n, side := b.cfg.Train.Batch, b.cfg.Size
	pixels := tensor.New(n, 3, side, side)
	captions, classes := make([]string, n), make([]string, n)
	var sources []int // sources of the examples
	for source, count := range b.counts {
		sources = append(sources, slices.Repeat([]int{source}, count)...)
	}

	draw := func(_ context.Context, i int) (pair, error) {
		p, err := b.samplers[sources[i]].sample(stream(b.cfg.Seed, "batch", step, i), writer{b.cfg.Careless, b.fits})
		if err != nil {
			err = fmt.Errorf("sources[%d]: %w", sources[i], err)
		}
		return p, err
	}

	if err := data.ParallelInOrder(ctx, n, workers, draw, func(i int, p pair) error {
		copy(pixels.Row(i).Data, p.pixels)
		captions[i], classes[i] = p.caption, p.class
		return nil
	}); err != nil {
		return nil, err
	}

	tokens, end, err := b.texts(captions)
	return tensor.Map{inPixels: pixels, inTokens: tokens, inEnd: end,
		inTargets: Targets(captions, classes, b.cfg.Train.ByClass)}, err
}

func (b *batches) fits(caption string) bool {
	ids, err := b.tok.Encode(caption)
	return err == nil && len(ids)+2 <= b.cfg.Caption
}

// texts tokenises captions: it returns ids [N,length] and the position of each end [N].
func (b *batches) texts(captions []string) (ids, end *tensor.Tensor, err error) {
	var all, ends []int64
	for _, text := range captions {
		seq, err := b.tok.Sequence(text, b.cfg.Caption)
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, int64(slices.Index(seq, int64(b.tok.EOT()))))
		all = append(all, seq...)
	}

	n := len(captions)
	return tensor.OfInts(all, n, b.cfg.Caption), tensor.OfInts(ends, n), nil
}

// stream returns a random stream for one purpose, seeded by a hash of the seed, the purpose and the numbers of its use.
// Unlike data.NewRand it hashes no length of the purpose: the bundled backbones were trained with these draws.
func stream(seed uint64, purpose string, k ...int) *rand.Rand {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, seed)
	h.Write([]byte(purpose))
	for _, i := range k {
		binary.Write(h, binary.LittleEndian, int64(i))
	}

	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])))
}
