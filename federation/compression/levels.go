package compression

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"promptfed/runtime/tensor"
)

// encodeLevels writes the scale of each bucket and the code of each number. The lowest bit of a code is the sign, 1 for
// numbers below 0; in quantise the level follows. drawn has the random numbers from [0,1) that rounded the levels, one
// for each number, 0 in a bucket of zeros; it is nil in sign.
func (c Codec) encodeLevels(d []float64, random *rand.Rand) (packed tensor.Map, drawn *tensor.Tensor) {
	var scales []float32
	if c.Kind == Quantise {
		drawn = tensor.New(len(d))
	}

	codes := make([]uint64, len(d))
	for from, size := range c.buckets(len(d)) {
		scale := c.scale(d[from : from+size])
		scales = append(scales, float32(scale/c.shrink(size)))
		for i, v := range d[from : from+size] {
			if c.Kind == Quantise && scale > 0 {
				u := random.Float64()
				codes[from+i], drawn.Data[from+i] = c.level(math.Abs(v)/scale, u)<<1, float32(u)
			}
			if v < 0 {
				codes[from+i] |= 1
			}
		}
	}

	words := pack(codes, c.codeBits())
	return tensor.Map{valuesName: tensor.Of(scales, len(scales)), bitsName: tensor.OfInts(words, len(words))}, drawn
}

// level returns the level of a number from 0 to 1. It rounds up if u, a random number from [0,1), is below the
// fraction, which makes the level unbiased.
func (c Codec) level(v, u float64) uint64 {
	exact := math.Min(v*float64(c.Levels), float64(c.Levels))
	level := uint64(exact)
	if u < exact-float64(level) {
		level++
	}
	return level
}

func (c Codec) decodeLevels(scales []float32, words []int64, n int) ([]float64, error) {
	codes := unpack(words, n, c.codeBits())
	out, bucket := make([]float64, n), 0
	for from, size := range c.buckets(n) {
		if !(scales[bucket] >= 0) {
			return nil, fmt.Errorf("a bucket has the scale %v, not a scale of at least 0", scales[bucket])
		}

		for i, code := range codes[from : from+size] {
			v := float64(scales[bucket])
			if c.Kind == Quantise {
				if code>>1 > uint64(c.Levels) {
					return nil, fmt.Errorf("it has the level %d, but the highest is %d", code>>1, c.Levels)
				}
				v *= float64(code>>1) / float64(c.Levels)
			}
			if code&1 == 1 {
				v = -v
			}
			out[from+i] = v
		}

		bucket++
	}

	return out, nil
}

// buckets yields the first number and the size of each bucket.
func (c Codec) buckets(n int) func(yield func(from, size int) bool) {
	size := c.Bucket
	if size == 0 {
		size = n
	}

	return func(yield func(from, size int) bool) {
		for from := 0; from < n && yield(from, min(size, n-from)); from += size {
		}
	}
}

// scale returns the norm of a bucket in quantise, and the mean of its absolute values in sign.
func (c Codec) scale(d []float64) float64 {
	sum, square := 0.0, 0.0
	for _, v := range d {
		sum, square = sum+math.Abs(v), square+v*v
	}

	if c.Kind == Quantise {
		return math.Sqrt(square)
	}

	return sum / float64(len(d))
}

// shrink returns the divisor of the scale of a bucket of n numbers. With error feedback, quantise divides by 1 plus the
// bound of its variance over the square of the norm, so that the remaining error is smaller than the update.
func (c Codec) shrink(n int) float64 {
	if c.Kind != Quantise || !c.Feedback {
		return 1
	}
	s := float64(c.Levels)
	return 1 + math.Min(float64(n)/(s*s), math.Sqrt(float64(n))/s)
}

// codeBits returns the number of bits of a code.
func (c Codec) codeBits() int {
	if c.Kind == Sign {
		return 1
	}
	return 1 + bits.Len(uint(c.Levels))
}

// pack writes codes of a fixed number of bits into 64-bit words, the lowest bits first.
func pack(codes []uint64, width int) []int64 {
	words := make([]int64, words(len(codes)*width))
	for i, code := range codes {
		at := i * width
		words[at/64] |= int64(code << (at % 64))
		if at%64+width > 64 {
			words[at/64+1] |= int64(code >> (64 - at%64))
		}
	}

	return words
}

// words returns the number of 64-bit words for so many bits.
func words(bits int) int { return (bits + 63) / 64 }

// unpack reads n codes from the words of pack.
func unpack(words []int64, n, width int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		at := i * width
		code := uint64(words[at/64]) >> (at % 64)
		if at%64+width > 64 {
			code |= uint64(words[at/64+1]) << (64 - at%64)
		}
		out[i] = code & (1<<width - 1)
	}

	return out
}
