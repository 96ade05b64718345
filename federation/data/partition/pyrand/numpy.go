package pyrand

import (
	"fmt"
	"math"
	"math/bits"
)

// NumPy is numpy.random.RandomState; its methods are also the functions of the module numpy.random after
// numpy.random.seed.
type NumPy struct {
	twister
	spare float64 // the second number of the last pair of normal draws
	have  bool
}

// NewNumPy is RandomState(seed). Like NumPy, it accepts only seeds below 2^32.
func NewNumPy(seed uint64) (*NumPy, error) {
	if seed > math.MaxUint32 {
		return nil, fmt.Errorf("seed %d: NumPy takes seeds from 0 to %d", seed, uint32(math.MaxUint32))
	}
	n := &NumPy{}
	n.mt.Seed(seed)
	return n, nil
}

// upTo is uniform in [0, most]: it draws as many bits as most has, until the number is at most most. For 0 it draws
// nothing.
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

// Permutation is permutation(k): the numbers from 0 to k-1, shuffled. The first m of them are choice(k, m,
// replace=False).
func (n *NumPy) Permutation(k int) []int {
	out := upTo(k)
	n.Shuffle(out)
	return out
}
