package message

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// requested has a parameter and an optional table of at most three rows.
var requested = tensor.Specs{{Name: "ctx", Shape: []int{2, 3}}, {Name: "n", Int: true, Shape: []int{-3, 2},
	Optional: true}}

// The largest message has all tensors with the largest sizes, int64 first: by hand 3*2*8 and 2*3*4 bytes, behind eight
// and this header with spaces up to a multiple of eight. EncodeTensors writes this message.
func TestMost(t *testing.T) {
	const text = `{"n":{"dtype":"I64","shape":[3,2],"data_offsets":[0,48]},` +
		`"ctx":{"dtype":"F32","shape":[2,3],"data_offsets":[48,72]}}`
	head, all, err := MaxEncodedSize(requested)
	if want := int64((8 + len(text) + 7) / 8 * 8); err != nil || head != want || all != want+48+24 {
		t.Errorf("%d and %d, not %d and %d: %v", head, all, want, want+72, err)
	}
	m := tensor.Map{"ctx": tensor.New(2, 3), "n": tensor.OfInts(make([]int64, 6), 3, 2)}
	if b, err := EncodeTensors(m); err != nil || int64(len(b)) != all {
		t.Errorf("%d bytes, not %d: %v", len(b), all, err)
	}
	for _, m := range []tensor.Map{m, {"ctx": m["ctx"]}, {"ctx": m["ctx"], "n": tensor.OfInts([]int64{1, 2}, 1, 2)},
		{"ctx": m["ctx"], "n": tensor.New(0, 2)}} {
		b, err := EncodeTensors(m)
		if err == nil {
			_, err = DecodeTensorsAs(b, requested)
		}
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	if _, _, err := MaxEncodedSize(tensor.Specs{{Name: "a", Shape: []int{math.MaxInt, 3}}}); err == nil {
		t.Error("a size beyond 2^62 is one")
	}
}

// Tensors that nobody requested are refused by name, element type and shape.
func TestOtherTensors(t *testing.T) {
	ctx := tensor.New(2, 3)
	for say, m := range map[string]tensor.Map{
		"the tensor ctx is missing, which must be float32[2 3]":        {},
		"the tensor ctx is float32[3 2] and must be float32[2 3]":      {"ctx": tensor.New(3, 2)},
		"the tensor ctx is float32[2] and must be":                     {"ctx": tensor.New(2)},
		"the tensor ctx is int64[2 1] and must be float32[2 3]":        {"ctx": tensor.OfInts([]int64{1, 2}, 2, 1)},
		"the tensor n is float32[1 2] and must be int64[<=3 2]":        {"ctx": ctx, "n": tensor.New(1, 2)},
		"the tensor n is float32[4 0] and must be int64[<=3 2]":        {"ctx": ctx, "n": tensor.New(4, 0)},
		"the tensor \"more\" is not among those that were asked for":   {"ctx": ctx, "more": tensor.New(0)},
		"a header of 160 bytes; at most 120 are accepted":              {strings.Repeat("a", 100): tensor.New(0)},
		"312 bytes of tensors; those that were asked for have at most": {"ctx": tensor.New(60)},
	} {
		b, err := EncodeTensors(m)
		goldentest.NoError(t, err)
		_, err = DecodeTensorsAs(b, requested)
		goldentest.WantError(t, err, say)
	}
}

// A message without these forms needs no more memory than its own size, whatever its header: one as long as the
// message, one with 100,000 names, one with a shape of 10,000 sizes, one with elements that grow when they are read.
func TestBombs(t *testing.T) {
	large := tensor.Specs{{Name: "a", Int: true, Shape: []int{1 << 20}}} // messages of 8 MiB are expected
	var names strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&names, `,"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`, i)
	}
	for say, header := range map[string]string{
		"a header of 8388608 bytes":  "{" + strings.Repeat(" ", 8<<20-2) + "}",
		"a header of 5688891 bytes":  "{" + names.String()[1:] + "}",
		"a header of 20":             `{"a":{"dtype":"I64","shape":[1` + strings.Repeat(",1", 9999) + `]}}`,
		"elements of type U8":        `{"a":{"dtype":"U8","shape":[8388600],"data_offsets":[0,8388600]}}`,
		"a is float32[2097152] and ": `{"a":{"dtype":"F32","shape":[2097152],"data_offsets":[0,8388608]}}`,
	} {
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		if strings.HasPrefix(say, "elements") {
			b = append(b, make([]byte, 8388600)...)
		} else if strings.Contains(say, "float32") {
			b = append(b, make([]byte, 8388608)...)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeTensorsAs(b, large)
		runtime.ReadMemStats(&after)
		goldentest.WantError(t, err, say)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
			t.Errorf("%q: %d bytes of memory", say, used)
		}
	}
}

// Every message has the forms or is refused in one line.
func FuzzDecodeAs(f *testing.F) {
	for _, m := range []tensor.Map{nil, sample(), {"ctx": tensor.New(2, 3)}} {
		b, err := EncodeTensors(m)
		goldentest.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeTensorsAs(b, requested)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if n := m["n"]; len(m["ctx"].Data) != 6 || len(m) > 2 || len(m) == 2 && (n == nil || n.Shape[0] > 3) {
			t.Fatalf("%v", m)
		}
	})
}
