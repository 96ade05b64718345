package secagg

import (
	"bytes"
	"crypto/aes"
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// The masked vector of one client has a uniform distribution, independent of its vector: each of its bytes passes a
// chi-square test, and so do the pairs of a byte of the vector and one of the masked vector. With these bounds one run
// in a million fails.
func TestOneVectorShowsNothing(t *testing.T) {
	const length, rare = 1 << 15, 1e-7
	for what, value := range map[string]func(i int) uint64{
		"zeros":     func(int) uint64 { return 0 },
		"all ones":  func(int) uint64 { return math.MaxUint32 },
		"a ramp":    func(i int) uint64 { return uint64(i) },
		"two sides": func(i int) uint64 { return uint64(i&1) << 31 },
	} {
		s := newSession(t, 2, length, 4, 0, 1, 2)
		for i := range length {
			s.values[1][i] = value(i) & math.MaxUint32
		}
		s.check(s.run())
		for b := range 4 {
			counts := make([]float64, 256)
			for _, v := range s.masked[1] {
				counts[v>>(8*b)&255]++
			}
			if got, most := chiSquare(counts), (distuv.ChiSquared{K: 255}).Quantile(1-rare); !(got < most) {
				t.Errorf("%s: byte %d has a chi-square of %v, above %v", what, b, got, most)
			}
		}
		pairs := make([]float64, 256) // high nibbles of the low bytes of the vector and the masked vector
		rows := make([]float64, 16)
		for i, v := range s.masked[1] {
			pairs[s.values[1][i]>>4&15<<4|v>>28]++
			rows[s.values[1][i]>>4&15]++
		}
		sum, used := 0.0, 0
		for r, n := range rows {
			if n > 0 {
				sum, used = sum+chiSquare(pairs[16*r:16*r+16]), used+1
			}
		}
		if most := (distuv.ChiSquared{K: float64(15 * used)}).Quantile(1 - rare); !(sum < most) {
			t.Errorf("%s: what is sent goes with the vector, chi-square %v above %v", what, sum, most)
		}
	}
}

func chiSquare(counts []float64) float64 {
	even := make([]float64, len(counts))
	for i := range even {
		for _, c := range counts {
			even[i] += c / float64(len(counts))
		}
	}
	return stat.ChiSquare(counts, even)
}

// The same vector in two sessions has two unrelated masked vectors.
func TestSessionsDiffer(t *testing.T) {
	var sent [2][]uint64
	for i := range sent {
		s := newSession(t, 2, 64, 8, 0, 1)
		clear(s.values[0])
		s.check(s.run())
		sent[i] = s.masked[0]
	}
	for i, v := range sent[0] {
		if v == sent[1][i] {
			t.Errorf("number %d is %d twice", i, v)
		}
	}
}

// Masks are AES-256 in counter mode over zeros: the first blocks are the key's ciphertexts of 0 and 1, the key of FIPS
// 197's appendix C.3.
func TestMaskIsAES(t *testing.T) {
	key, _ := hex.DecodeString("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	block, err := aes.NewCipher(key)
	goldentest.NoError(t, err)
	counter, want := make([]byte, 16), make([]byte, 0, 32)
	for i := range byte(2) {
		counter[15] = i
		out := make([]byte, 16)
		block.Encrypt(out, counter)
		want = append(want, out...)
	}
	for _, width := range []int{1, 2, 4, 8} {
		sum := make([]uint64, 32/width)
		Ring{width}.addMask(sum, key, false)
		if got := (Ring{width}).Encode(sum); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %x, want %x", width, got, want)
		}
		Ring{width}.addMask(sum, key, true)
		if slices.ContainsFunc(sum, func(v uint64) bool { return v != 0 }) {
			t.Error("a mask does not come off again")
		}
	}
}

func TestRing(t *testing.T) {
	for most, width := range map[uint64]int{0: 1, 127: 1, 128: 2, 1<<31 - 1: 4, 1 << 31: 5, 1<<63 - 1: 8} {
		if r, err := SmallestRing(most); err != nil || r.Width != width {
			t.Errorf("%d: %v, %v; want %d bytes", most, r, err, width)
		}
	}
	if _, err := SmallestRing(1 << 63); err == nil {
		t.Error("65 bits fit")
	}
	for width := 1; width <= 8; width++ {
		r := Ring{width}
		for _, v := range []int64{0, 1, -1, 127, -128, 100, -100} {
			if got := r.Signed(r.Element(v)); got != v {
				t.Errorf("%d bytes: %d comes back as %d", width, v, got)
			}
		}
		sum := []uint64{0}
		for _, v := range []int64{100, -50, -60} {
			r.add(sum, []uint64{r.Element(v)})
		}
		if got := r.Signed(sum[0]); got != -10 {
			t.Errorf("%d bytes: 100 - 50 - 60 is %d", width, got)
		}
	}
}

// A client's encrypted shares differ between receivers, and only the receiver can open its own. An invalid one opens
// nothing, and the complaint about it reveals nothing.
func TestEncryptedShares(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1, 2)
	r, err := s.join()
	goldentest.NoError(t, err)
	in, err := s.deal(r)
	goldentest.NoError(t, err)
	seen := map[string]bool{}
	for _, shares := range in {
		for _, l := range shares {
			seen[string(l.Sealed)] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d different shares of 6", len(seen))
	}
	refused := func(what string, l EncryptedShare) {
		t.Helper()
		c := s.clients[1]
		out, err := c.open(EncryptedShares{0: l}, nil)
		if x, ok := out[0]; err != nil || !ok || len(x.Shared)+len(x.Proof) > 0 || c.seedShares[0] != nil {
			t.Errorf("%s: %v, %v", what, out, err)
		}
	}
	refused("an encrypted share of another dealer", in[1][2])
	refused("an encrypted share for another client", in[2][0])
	for bit := range 8 * sealedSize {
		bad := in[1][0]
		bad.Sealed = slices.Clone(bad.Sealed)
		bad.Sealed[bit/8] ^= 1 << (bit % 8)
		refused("a changed bit", bad)
	}
	bad := in[1][0]
	bad.Commitments[0] ^= 1
	refused("a changed commitment", bad)
	if out, err := s.clients[1].Check(in[1]); err != nil || len(out) > 0 {
		t.Errorf("after refusals: %v, %v", out, err)
	}
}
