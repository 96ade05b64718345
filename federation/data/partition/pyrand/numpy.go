package pyrand

import (
	"fmt"
	"math"
	"math/bits"

	"promptfed/runtime/tensor"
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
	out := tensor.Indices(k)
	n.Shuffle(out)
	return out
}

// Gauss is standard_normal(): the polar method (Marsaglia), which keeps its second number for the next call.
func (n *NumPy) Gauss() float64 {
	if n.have {
		n.have = false
		return n.spare
	}

	for {
		x1, x2 := 2*n.Float64()-1, 2*n.Float64()-1
		r2 := float64(x1*x1) + float64(x2*x2)
		if r2 < 1 && r2 != 0 {
			f := math.Sqrt(-2 * log(r2) / r2)
			n.spare, n.have = float64(f*x1), true
			return f * x2
		}
	}
}

// Exponential is standard_exponential().
func (n *NumPy) Exponential() float64 { return -log(1 - n.Float64()) }

// Gamma is standard_gamma(shape) of a shape above 0: below 1 by rejection from a power and an exponential (Ahrens and
// Dieter 1974, as in NumPy), above 1 by the method of Marsaglia and Tsang (2000).
func (n *NumPy) Gamma(shape float64) float64 {
	switch {
	case shape == 1:
		return n.Exponential()
	case shape < 1:
		return n.smallGamma(shape)
	}

	scale := shape - 1./3
	c := 1 / math.Sqrt(9*scale)
	for {
		x, cube := 0.0, 0.0
		for cube <= 0 {
			x = n.Gauss()
			cube = 1 + float64(c*x)
		}
		cube = cube * cube * cube
		u := n.Float64()
		if u < 1-float64(0.0331*(x*x)*(x*x)) {
			return scale * cube
		}
		if log(u) < float64(0.5*x*x)+float64(scale*(1-cube+log(cube))) {
			return scale * cube
		}
	}
}

func (n *NumPy) smallGamma(shape float64) float64 {
	for {
		u, v := n.Float64(), n.Exponential()
		if u <= 1-shape {
			if x := pow(u, 1/shape); x <= v {
				return x
			}
			continue
		}
		y := -log((1 - u) / shape)
		if x := pow(1-shape+float64(shape*y), 1/shape); x <= v+y {
			return x
		}
	}
}

// Dirichlet is dirichlet(alpha) with k equal concentrations. If all gamma draws underflow, as small concentrations may
// cause, the numbers are NaN, as in NumPy.
func (n *NumPy) Dirichlet(alpha float64, k int) []float64 {
	out := make([]float64, k)
	sum := 0.0
	for i := range out {
		out[i] = n.Gamma(alpha)
		sum += out[i]
	}

	inverse := 1 / sum
	for i := range out {
		out[i] *= inverse
	}

	return out
}

// Category is argmax(multinomial(1, p)): the index that a chain of binomial draws of one trial selects; -1 if p is
// empty or has a NaN, which NumPy refuses.
func (n *NumPy) Category(p []float64) int {
	rest := 1.0
	last := len(p) - 1
	if last < 0 {
		return last
	}

	for i, q := range p[:last] {
		if math.IsNaN(q / rest) {
			return -1
		}
		if n.trial(q / rest) {
			return i
		}
		rest -= q
	}

	return last
}

// trial is binomial(1, p): inversion on the rarer outcome.
func (n *NumPy) trial(p float64) bool {
	if p == 0 {
		return false
	}
	if p <= 0.5 {
		return n.inversion(p)
	}
	return !n.inversion(1 - p)
}

func (n *NumPy) inversion(p float64) bool {
	q := 1 - p
	none := exp(log(q))
	for {
		u := n.Float64()
		if u <= none {
			return false
		}
		if u-none <= float64(p*none)/q { // otherwise a second success, which one trial cannot have: draw again
			return true
		}
	}
}

// Sum adds as numpy.sum does: by halves above 128 numbers, in eight interleaved sums above 7.
func Sum(values []float64) float64 {
	switch n := len(values); {
	case n < 8:
		s := 0.0
		for _, v := range values {
			s += v
		}
		return s
	case n <= 128:
		var r [8]float64
		copy(r[:], values)
		i := 8
		for ; i < n-n%8; i += 8 {
			for j := range r {
				r[j] += values[i+j]
			}
		}
		s := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		for ; i < n; i++ {
			s += values[i]
		}
		return s
	default:
		half := n / 2
		half -= half % 8
		return Sum(values[:half]) + Sum(values[half:])
	}
}
