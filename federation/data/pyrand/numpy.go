package pyrand

import (
	"fmt"
	"math"
	"math/bits"
)

// NumPy is numpy.random.RandomState, and after numpy.random.seed the module's own functions.
type NumPy struct {
	twister
	spare float64 // the second of the last pair of normal draws
	have  bool
}

// NewNumPy is RandomState(seed). Like NumPy it takes seeds below 2^32 only.
func NewNumPy(seed uint64) (*NumPy, error) {
	if seed > math.MaxUint32 {
		return nil, fmt.Errorf("seed %d: NumPy takes seeds from 0 to %d", seed, uint32(math.MaxUint32))
	}
	n := &NumPy{}
	n.mt.Seed(seed)
	return n, nil
}

// upTo is uniform in [0, most]: the bits of a word that most needs, until they are not above it. It draws nothing for
// 0.
func (n *NumPy) upTo(most uint64) uint64 {
	if most == 0 {
		return 0
	}
	mask := uint64(math.MaxUint64) >> bits.LeadingZeros64(most)
	for {
		var r uint64
		if most <= math.MaxUint32 {
			r = uint64(n.mt.Uint32())
		} else {
			r = n.mt.Uint64()
		}
		if r &= mask; r <= most {
			return r
		}
	}
}

// IntN is randint(k), uniform in [0, k). choice(a) of a list of k elements draws the same. k must be at least 1.
func (n *NumPy) IntN(k int) int { return int(n.upTo(uint64(k - 1))) }

// Shuffle is shuffle(s), in place.
func (n *NumPy) Shuffle(s []int) {
	for i := len(s) - 1; i > 0; i-- {
		j := n.upTo(uint64(i))
		s[i], s[j] = s[j], s[i]
	}
}

// Permutation is permutation(k): the numbers from 0 to k-1, shuffled. Its first m are choice(k, m, replace=False).
func (n *NumPy) Permutation(k int) []int {
	out := make([]int, k)
	for i := range out {
		out[i] = i
	}
	n.Shuffle(out)
	return out
}
