package pyrand

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// recorded is a list of draws of CPython 3.11 and NumPy 2.4 that tools/golden/partition.py wrote: floats as their bits,
// so equality means the same float64.
type recorded struct {
	N      int
	First  []string
	SHA256 string
}

func (r recorded) check(t *testing.T, what string, got []string) {
	t.Helper()
	for i, want := range r.First {
		if i >= len(got) || got[i] != want {
			t.Errorf("%s: draws %v, want %v", what, got[:min(len(got), len(r.First))], r.First)
			return
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(got, "\n") + "\n"))
	if len(got) != r.N || hex.EncodeToString(sum[:]) != r.SHA256 {
		t.Errorf("%s: one of %d draws after the first %d differs", what, r.N, len(r.First))
	}
}

func floats(n int, draw func(int) float64) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%016x", math.Float64bits(draw(i)))
	}
	return out
}

func whole(n int, draw func(int) int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(draw(i))
	}
	return out
}

func list(s []int) []string { return whole(len(s), func(i int) int { return s[i] }) }

func golden(t *testing.T) (g map[string]map[string]map[string]recorded) {
	t.Helper()
	goldentest.ReadJSON(t, "testdata/draws.json", &g)
	return g
}

func seeds(t *testing.T, g map[string]map[string]recorded, do func(t *testing.T, seed uint64,
	want map[string]recorded)) {
	if len(g) < 5 {
		t.Fatalf("%d seeds", len(g))
	}
	for text, want := range g {
		seed, err := strconv.ParseUint(text, 10, 64)
		goldentest.NoError(t, err)
		t.Run(text, func(t *testing.T) { do(t, seed, want) })
	}
}

func TestPython(t *testing.T) {
	seeds(t, golden(t)["python"], func(t *testing.T, seed uint64, want map[string]recorded) {
		p := NewPython(seed)
		want["random"].check(t, "random", floats(3000, func(int) float64 { return p.Float64() }))
		want["below"].check(t, "below", whole(3000, func(i int) int { return p.RandBelow(i + 1) }))
		var words []string
		for k := 1; k <= 64; k++ {
			word := uint64(p.mt.Uint32())
			if k > 32 { // the last of several words is shifted down to the remaining bits
				word |= uint64(p.mt.Uint32()>>(64-k)) << 32
			} else {
				word >>= 32 - k
			}
			words = append(words, strconv.FormatUint(word, 10))
		}
		want["bits"].check(t, "bits", words)
		want["uniform"].check(t, "uniform", floats(1000, func(int) float64 { return p.Uniform(-2.5, 7.25) }))
		s := tensor.Indices(1500)
		Shuffle(p, s)
		want["shuffle"].check(t, "shuffle", list(s))
		want["choice"].check(t, "choice", whole(1000, func(int) int { return s[p.RandBelow(len(s))] }))
		var taken []int
		for _, c := range [][2]int{{20, 3}, {21, 5}, {22, 5}, {85, 6}, {86, 6}, {100, 16}, {277, 16}, {278, 16},
			{500, 21}, {1045, 100},
			{5000, 340}, {5000, 341}, {60, 60}} {
			taken = append(taken, p.Sample(c[0], c[1])...)
		}
		want["sample"].check(t, "sample", list(taken))
		want["after"].check(t, "after", floats(1, func(int) float64 { return p.Float64() }))
	})
}

func TestNumPy(t *testing.T) {
	seeds(t, golden(t)["numpy"], func(t *testing.T, seed uint64, want map[string]recorded) {
		n, err := NewNumPy(seed)
		goldentest.NoError(t, err)
		want["random"].check(t, "random", floats(3000, func(int) float64 { return n.Float64() }))
		want["uniform"].check(t, "uniform", floats(1000, func(int) float64 { return n.Uniform(0.4, 0.6) }))
		want["randint"].check(t, "randint", whole(3000, func(i int) int { return n.IntN(i + 1) }))
		want["choice"].check(t, "choice", whole(499, func(i int) int { return n.IntN(i + 1) }))
		want["wide"].check(t, "wide", whole(200, func(int) int { return n.IntN(1<<40 + 12345) }))
		s := tensor.Indices(1500)
		n.Shuffle(s)
		want["shuffle"].check(t, "shuffle", list(s))
		s = tensor.Indices(77)
		n.Shuffle(s)
		want["shuffle list"].check(t, "shuffle list", list(s))
		want["permutation"].check(t, "permutation", list(n.Permutation(1000)))
		want["choice without"].check(t, "choice without", list(n.Permutation(1000)[:100]))
		want["gauss"].check(t, "gauss", floats(3001, func(int) float64 { return n.Gauss() }))
		want["exponential"].check(t, "exponential", floats(3000, func(int) float64 { return n.Exponential() }))
		shapes := []float64{0.001, 0.05, 0.1, 0.3, 0.5, 0.99, 1.0, 1.01, 2.5, 10.0, 300.0}
		want["gamma"].check(t, "gamma", floats(22000, func(i int) float64 { return n.Gamma(shapes[i/2000]) }))
		var all []float64
		for _, c := range []struct {
			alpha float64
			k     int
		}{{0.01, 10}, {0.05, 500}, {0.1, 20}, {0.5, 100}, {1.0, 3}, {10.0, 5}, {0.3, 1}} {
			for range 20 {
				all = append(all, n.Dirichlet(c.alpha, c.k)...)
			}
		}
		want["dirichlet"].check(t, "dirichlet", floats(len(all), func(i int) float64 { return all[i] }))
		var picks []int
		for _, c := range []struct {
			alpha float64
			k     int
		}{{0.3, 20}, {10.0, 5}, {1.0, 2}, {0.05, 50}} {
			for range 10 {
				p := n.Dirichlet(c.alpha, c.k)
				for range 100 {
					picks = append(picks, n.Category(p))
				}
			}
		}
		want["category"].check(t, "category", list(picks))
		lengths := append(tensor.Indices(40)[1:], 127, 128, 129, 136, 137, 255, 256, 300, 1000)
		want["sum"].check(t, "sum", floats(len(lengths), func(i int) float64 {
			x := make([]float64, lengths[i])
			for j := range x {
				x[j] = n.Gamma(0.3)
			}
			return Sum(x)
		}))
		want["after"].check(t, "after", floats(1, func(int) float64 { return n.Float64() }))
	})
}

func TestEdges(t *testing.T) {
	_, err := NewNumPy(1 << 32)
	goldentest.WantErrorOf(t, "seed 2^32", err, "4294967295")
	n, _ := NewNumPy(1)
	// Below 1e-5 every draw u^(1/shape) underflows (u would have to be above 0.993), and NumPy returns 0/0 too.
	for _, x := range n.Dirichlet(1e-9, 5) {
		if !math.IsNaN(x) {
			t.Errorf("Dirichlet(1e-9) has %v", x)
		}
	}
	if k := n.Category([]float64{math.NaN(), 1}); k != -1 {
		t.Errorf("Category of NaN is %d", k)
	}
	if k := n.Category(nil); k != -1 {
		t.Errorf("Category of nothing is %d", k)
	}
	p := NewPython(1)
	if k := p.RandBelow(0); k != 0 {
		t.Errorf("Below(0) = %d", k)
	}
	if s := p.Sample(3, 0); len(s) != 0 {
		t.Errorf("Sample of 0: %v", s)
	}
}

// TestLibrary compares with math over all magnitudes; math is exact within one unit in the last place.
func TestLibrary(t *testing.T) {
	p := NewPython(7)
	near := func(a, b float64) bool {
		return a == b || math.Abs(a-b) <= 3e-16*math.Abs(b) || math.Abs(a-b) <= 5e-324 || math.IsNaN(a) && math.IsNaN(b)
	}
	values := []float64{0, 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, math.MaxFloat64, 0.9999999999999999,
		1.0000000000000002, 0.5, 2}
	for range 20000 {
		values = append(values, math.Ldexp(p.Float64(), p.RandBelow(2100)-1074))
	}
	for _, x := range values {
		if x >= 0x1p-1022 && !near(log(x), math.Log(x)) { // math.Log is wrong for subnormals on amd64
			t.Errorf("log(%v) = %v, math has %v", x, log(x), math.Log(x))
		}
		for _, y := range []float64{x, -x} {
			if !near(exp(y), math.Exp(y)) {
				t.Errorf("exp(%v) = %v, math has %v", y, exp(y), math.Exp(y))
			}
		}
	}
	if want := -1074 * math.Ln2; !near(log(5e-324), want) {
		t.Errorf("log(2^-1074) = %v, want %v", log(5e-324), want)
	}
	// Go's pow is less exact; squares and roots are exact enough to check against
	for _, x := range slices.Concat(values, []float64{3, 10}) {
		for _, y := range []float64{0, 1, 2, 0.5, -1, 1e-30, 1e30, math.Inf(1), math.NaN()} {
			want := math.Pow(x, y)
			if got := pow(x, y); !near(got, want) {
				t.Errorf("pow(%v, %v) = %v, math has %v", x, y, got, want)
			}
		}
	}
}
