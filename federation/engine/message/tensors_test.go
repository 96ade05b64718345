package message

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func sample() tensor.Map {
	return tensor.Map{
		"shared/ctx":  tensor.Of([]float32{1, -2.5, float32(math.Copysign(0, -1)), 3e-39, math.MaxFloat32, 0.1}, 2, 3),
		"extra/n":     tensor.OfInts([]int64{-1, math.MaxInt64}, 2),
		"extra/none":  tensor.New(0, 4),
		"extra/scale": tensor.Scalar(7),
	}
}

func TestRoundTripIsExact(t *testing.T) {
	m := sample()
	b, err := EncodeTensors(m)
	goldentest.NoError(t, err)
	if EncodedSize(m) != len(b) {
		t.Errorf("Size is %d, the message has %d bytes", EncodedSize(m), len(b))
	}
	again, _ := EncodeTensors(m.Clone())
	if !bytes.Equal(b, again) {
		t.Error("the same tensors gave other bytes")
	}
	got, err := DecodeTensors(b)
	goldentest.NoError(t, err)
	if !slices.Equal(got.Names(), m.Names()) {
		t.Fatalf("decoded %v", got.Names())
	}
	for name, want := range m {
		g := got[name]
		if !slices.Equal(g.Shape, want.Shape) || !slices.Equal(g.Ints, want.Ints) {
			t.Errorf("%s is %v %v", name, g, g.Ints)
		}
		for i, v := range want.Data {
			if math.Float32bits(v) != math.Float32bits(g.Data[i]) {
				t.Errorf("%s: element %d is %g, was %g", name, i, g.Data[i], v)
			}
		}
	}
	// A change of decoded tensors must not reach the message, nor a change of the message the tensors.
	got["shared/ctx"].Data[0] = 9
	if third, _ := DecodeTensors(b); third["shared/ctx"].Data[0] != 1 {
		t.Error("a decoded tensor shares memory with the message")
	}
}

func TestEmptyMessage(t *testing.T) {
	b, err := EncodeTensors(nil)
	goldentest.NoError(t, err)
	if m, err := DecodeTensors(b); err != nil || len(m) != 0 {
		t.Errorf("%v, %v", m, err)
	}
}

func TestDamagedMessages(t *testing.T) {
	b, err := EncodeTensors(sample())
	goldentest.NoError(t, err)
	for n := range b {
		if m, err := DecodeTensors(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were taken for %v", n, len(b), m.Names())
		} else if !strings.HasPrefix(err.Error(), "decoding a message") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("error %q", err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []tensor.Map{nil, sample()} {
		b, err := EncodeTensors(m)
		goldentest.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeTensors(b)
		if err != nil {
			return
		}
		if m.Bytes() > 8*len(b) {
			t.Fatalf("%d bytes became %d", len(b), m.Bytes())
		}
		again, err := EncodeTensors(m)
		if err != nil {
			t.Fatalf("decoded, but not encoded again: %v", err)
		}
		if _, err := DecodeTensors(again); err != nil {
			t.Fatal(err)
		}
	})
}

// A length alone is a message with a header that is missing.
func TestLengthAlone(t *testing.T) {
	_, err := DecodeTensors(binary.LittleEndian.AppendUint64(nil, 1<<40))
	goldentest.WantError(t, err, "a header of 1099511627776 bytes")
}

// A header of 2 MiB, with the eight bytes of its length, is read, and one byte more is refused.
func TestLargestHeader(t *testing.T) {
	for n, says := range map[int]string{maxHeader - 8: "",
		maxHeader: "decoding a message: a header of 2097152 bytes; at most 2097144"} {
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(n)), "{"+strings.Repeat(" ", n-2)+"}"...)
		if _, err := DecodeTensors(b); (err == nil) != (says == "") || err != nil &&
			!strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", n, err)
		}
	}
}
