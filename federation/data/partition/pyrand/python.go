package pyrand

import (
	"math/bits"

	"promptfed/runtime/tensor"

	"gonum.org/v1/gonum/mathext/prng"
)

// twister is the generator that both draw from.
type twister struct{ mt prng.MT19937 }

// Float64 is uniform in [0, 1) with 53 bits: random() in Python, random_sample() in NumPy.
func (t *twister) Float64() float64 {
	a, b := t.mt.Uint32()>>5, t.mt.Uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53) // exact, since it divides by a power of two
}

// Uniform is low + (high-low) u.
func (t *twister) Uniform(low, high float64) float64 {
	return low + float64((high-low)*t.Float64())
}

// Python is random.Random.
type Python struct{ twister }

// NewPython is random.Random(seed).
func NewPython(seed uint64) *Python {
	key := []uint32{uint32(seed)}
	if seed>>32 > 0 {
		key = append(key, uint32(seed>>32))
	}
	p := &Python{}
	p.mt.SeedFromKeys(key)
	return p
}

// RandBelow is uniform in [0, n) for n below 2^32, as Python's _randbelow: it draws as many bits as n has, until the
// number is below n. For an n of 0 or less it returns 0 and draws nothing.
func (p *Python) RandBelow(n int) int {
	if n < 1 {
		return 0
	}

	for {
		if r := p.mt.Uint32() >> (32 - bits.Len32(uint32(n))); r < uint32(n) { // getrandbits
			return int(r)
		}
	}
}

// Shuffle is shuffle(s), in place.
func Shuffle[T any](p *Python, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := p.RandBelow(i + 1)
		s[i], s[j] = s[j], s[i]
	}
}

// Permutation is list(range(n)), shuffled.
func (p *Python) Permutation(n int) []int {
	out := tensor.Indices(n)
	Shuffle(p, out)
	return out
}

// Sample is sample(range(n), k): k different numbers below n, in the order of the draws. k must lie between 0 and n.
func (p *Python) Sample(n, k int) []int {
	out := make([]int, k)
	if n <= poolSize(k) {
		pool := tensor.Indices(n)
		for i := range out {
			j := p.RandBelow(n - i)
			out[i] = pool[j]
			pool[j] = pool[n-i-1]
		}
		return out
	}

	taken := make(map[int]bool, k)
	for i := range out {
		j := p.RandBelow(n)
		for taken[j] {
			j = p.RandBelow(n)
		}
		taken[j] = true
		out[i] = j
	}

	return out
}

// poolSize is the largest population that Sample copies; for larger ones it records the indices that it took. It is 21,
// plus a power of 4 of at least 3k for k above 5.
func poolSize(k int) int {
	size := 21
	if k > 5 {
		power := 1
		for power < 3*k {
			power *= 4
		}
		size += power
	}

	return size
}
