package methodtest

import "math/rand/v2"

// Source is a source of random bits from Value(salt, 0), Value(salt, 1) and so on, so that another language can repeat
// the draws of math/rand/v2. Each number of either kind takes one of them; with x the 32 bits (Value+1)·2^31 and
// j = (x as a signed number) >> 1:
//
//	NormFloat64 is j times normalWidth,
//	Float64 is the lower 53 bits of (x>>18)<<39 | 127<<32 | (j as 32 bits), divided by 2^53.
type Source struct {
	Salt int
	n    int
}

// normalWidth is the width of layer 127 in math/rand/v2's ziggurat, a float32; all j above lie inside it.
const normalWidth = 1.6030947938091123e-09

// Uint64 returns the bits for the next number of the sequence.
func (s *Source) Uint64() uint64 {
	x := uint32((Value(s.Salt, s.n) + 1) * (1 << 31))
	s.n++
	return uint64(x>>18)<<39 | 127<<32 | uint64(uint32(int32(x)>>1))
}

// PinnedRand returns the random source of a client in a round of a Pinned method.
func PinnedRand(round, client int) *rand.Rand {
	return rand.New(&Source{Salt: 8000 + 100*round + client})
}
