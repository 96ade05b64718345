package secure

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// By hand, with 8 bits (-127..127) and clip 1.27, a step of 0.01: (0.5, -2) from (0, 1) is 50 and -300, clipped to
// -127; with 3 examples 150 and -381. A loss of 32 is 63.5 of 127, rounded to even 64.
func TestVectorByHand(t *testing.T) {
	l, err := New(Config{Threshold: 0.6, Bits: 8, Clip: 1.27, ExtraClip: 1, Examples: 10}, Examples, nil, 2, 2)
	goldentest.NoError(t, err)
	sent := tensor.Map{"a": tensor.Of([]float32{0}, 1), "b": tensor.Of([]float32{1}, 1)}
	up := func(n int, a, b float32) method.Upload {
		return method.Upload{N: n, Shared: tensor.Map{"a": tensor.Of([]float32{a}, 1), "b": tensor.Of([]float32{b}, 1)}}
	}
	first, err := l.vector(sent, up(3, 0.5, -2), 32)
	if err != nil || !slices.Equal(first, []int64{150, -381, 3, 64, 1}) {
		t.Errorf("%v, %v", first, err)
	}
	second, err := l.vector(sent, up(12, -0.104, 1), 0) // -10, with at most 10 examples
	if err != nil || !slices.Equal(second, []int64{-100, 0, 10, 0, 0}) {
		t.Errorf("%v, %v", second, err)
	}
	bounds, err := l.vector(sent, up(1, 1.27, -0.27), 0) // 127 and -127 are not clipped
	if err != nil || !slices.Equal(bounds, []int64{127, -127, 1, 0, 0}) {
		t.Errorf("%v, %v", bounds, err)
	}
	sum := make([]int64, len(first))
	for i := range sum {
		sum[i] = first[i] + second[i]
	}
	if err := l.checkBounds(sent, sum, 2, -1); err != nil {
		t.Error(err)
	}
	got, loss, clipped := l.mean(sent, sum, 2) // 50/13 and -381/13 steps
	if got.N != 13 || got.Client != method.AggregatedClient ||
		math.Abs(float64(got.Shared["a"].Data[0])-0.5/13) > 1e-7 ||
		math.Abs(float64(got.Shared["b"].Data[0])-(1-3.81/13)) > 1e-6 || math.Abs(loss-64./127*64/2) > 1e-9 ||
		clipped != 0.25 {
		t.Errorf("%+v, loss %v, clipped %v", got, loss, clipped)
	}
	// the largest sums of two vectors of 10 examples, and one more: weights of 2 to 20, losses and numbers of 127 each,
	// 2 numbers each that are clipped
	for _, good := range [][]int64{{0, 0, 2, 254, 4}, {20 * 127, -20 * 127, 20, -254, 0}} {
		if err := l.checkBounds(sent, good, 2, -1); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for _, bad := range [][]int64{{0, 0, 1, 0, 0}, {0, 0, 21, 0, 0}, {0, 0, -5, 0, 0}, {0, 13*127 + 1, 13, 0, 0},
		{-13*127 - 1, 0, 13, 0, 0}, {0, 0, 2, 255, 0}, {0, 0, 2, -255, 0}, {0, 0, 2, 0, -1}, {0, 0, 2, 0, 5}} {
		goldentest.WantErrorOf(t, fmt.Sprint(bad), l.checkBounds(sent, bad, 2, -1), "an invalid vector")
	}
	// a mean that moves by 0.3 and 0.4 has the norm 0.5; the parameters' own, (0, 1), is below that of ones
	moved := []int64{2 * 30, 2 * 40, 2, 0, 0}
	for most, ok := range map[float64]bool{0.49: false, 0.51: true, 0: true, -1: true} {
		if err := l.checkBounds(sent, moved, 2, most); (err == nil) != ok {
			t.Errorf("a norm of 0.5, with at most %v: %v", most, err)
		}
	}
	extra := up(1, 0, 0)
	extra.Extra = tensor.Map{"x": tensor.New(1)}
	_, err = l.vector(sent, extra, 0)
	goldentest.WantError(t, err, "cannot add up")
	if _, err := l.vector(sent, method.Upload{Shared: tensor.Map{"a": sent["a"]}}, 0); err == nil {
		t.Error("a missing parameter was taken")
	}
}

// The largest vectors of all clients together do not overflow, with any settings.
func TestSumsFit(t *testing.T) {
	for _, bits := range []int{8, 24, 32} {
		for _, examples := range []int{1, 1000, 1 << 20} {
			for _, clients := range []int{2, 100, 1000} {
				l, err := New(Config{Threshold: 0.6, Bits: bits, Clip: 1, ExtraClip: 1, Examples: examples}, Examples,
					nil, clients, clients)
				goldentest.NoError(t, err)
				r := l.ring
				sent := tensor.Map{"a": tensor.New(2)}
				v, err := l.vector(sent, method.Upload{N: examples, Shared: tensor.Map{"a": tensor.Of([]float32{9, -9},
					2)}}, 1e9)
				goldentest.NoError(t, err)
				signed := make([]int64, len(v))
				for i, x := range v {
					sum := uint64(0)
					for range clients {
						sum += r.Element(x)
					}
					signed[i] = r.Signed(sum)
				}
				err = l.checkBounds(sent, signed, clients, -1)
				up, loss, clipped := l.mean(sent, signed, clients)
				if err != nil || up.Shared["a"].Data[0] != 1 || up.Shared["a"].Data[1] != -1 ||
					up.N != clients*examples || loss != maxLoss || clipped != 1 {
					t.Errorf("%d bits, %d examples, %d clients in %d bytes: %+v, %v, %v, %v", bits, examples, clients,
						r.Width, up, loss, clipped, err)
				}
			}
		}
	}
}

// FuzzPack checks that unpacking returns the packed bytes, and that a tensor is refused unless packing restores it.
func FuzzPack(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, int64(1<<62))
	_, err := unpack(tensor.Map{"x": tensor.OfInts([]int64{8, 1, 0}, 3)}, "x") // a number more than 8 bytes need
	goldentest.WantError(f, err, "x states 8 bytes in 2 numbers")
	f.Fuzz(func(t *testing.T, b []byte, first int64) {
		m := pack("x", b)
		back, err := unpack(m, "x")
		if err != nil || !bytes.Equal(back, b) {
			t.Fatalf("%x came back as %x, %v", b, back, err)
		}
		m["x"].Ints[0] = first
		if other, err := unpack(m, "x"); err == nil && !slices.Equal(pack("x", other)["x"].Ints, m["x"].Ints) {
			t.Fatalf("%v was read as %x", m["x"].Ints, other)
		}
		if terms, err := decodeParams(b); err == nil && !bytes.Equal(encodeParams(terms), b) {
			t.Fatalf("%x was read as %+v", b, terms)
		}
	})
}

// Thresholds are more than half.
func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		share   float64
		clients int
		want    int
	}{{0.6, 5, 3}, {0.6, 10, 6}, {0.51, 2, 2}, {0.51, 4, 3}, {1, 7, 7}, {0.7, 10, 7}, {0.6, 1, 2}} {
		l := &Aggregation{config: Config{Threshold: c.share}, round: c.clients}
		if got := l.threshold(); got != c.want {
			t.Errorf("%v of %d clients: %d, want %d", c.share, c.clients, got, c.want)
		}
		if n := c.clients; n > 1 && 2*l.threshold() <= n {
			t.Error("half is enough")
		}
	}
	if (secagg.Ring{Width: 4}).Signed(0xffffffff) != -1 {
		t.Error("-1")
	}
}

// Extra tensors have their own step, 2/127 with 8 bits: by hand 0.5 and 5, clipped to 2, are 31.75, to even 32, and
// 127. Their means over two clients, the other one with 0, are 32/127 and 1.
func TestBesideByHand(t *testing.T) {
	l, err := New(Config{Threshold: 0.6, Bits: 8, Clip: 1.27, ExtraClip: 2, Examples: 10}, Uniform, []string{"more"}, 2,
		2)
	goldentest.NoError(t, err)
	sent := tensor.Map{"a": tensor.Of([]float32{7}, 1), "b": tensor.Of([]float32{8}, 1)}
	up := func(a, b float32) method.Upload {
		return method.Upload{N: 9, Shared: sent, Extra: tensor.Map{"more/a": tensor.Of([]float32{a}, 1),
			"more/b": tensor.Of([]float32{b}, 1)}}
	}
	v, err := l.vector(sent, up(0.5, 5), 0)
	if err != nil || !slices.Equal(v, []int64{0, 0, 32, 127, 1, 0, 1}) || len(v) != l.length(sent) {
		t.Fatalf("%v, %v", v, err)
	}
	v[4] = 2 // the other client's weight
	got, _, _ := l.mean(sent, v, 2)
	if err := l.checkBounds(sent, v, 2, -1); err != nil || got.N != 2 || got.Shared["b"].Data[0] != 8 ||
		math.Abs(float64(got.Extra["more/a"].Data[0])-32./127) > 1e-7 || got.Extra["more/b"].Data[0] != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(tensor.Map){
		"parameter b is uploaded as":            func(m tensor.Map) { delete(m, "more/b") },
		"cannot add up":                         func(m tensor.Map) { m["other"] = sent["a"] },
		"parameter a is uploaded as float32[2]": func(m tensor.Map) { m["more/a"] = tensor.New(2) },
		"parameter a is uploaded as int64[1]":   func(m tensor.Map) { m["more/a"] = tensor.OfInts([]int64{1}, 1) },
	} {
		bad := up(1, 1)
		change(bad.Extra)
		_, err := l.vector(sent, bad, 0)
		goldentest.WantError(t, err, name)
	}
}
