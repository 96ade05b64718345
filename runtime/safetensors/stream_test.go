package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// The bytes were laid out by hand from the published format: tensors in the order declared, data at a multiple of 64.
func TestStreamBytes(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, []Entry{{"z", "F32", []int{2, 2}}, {"none", "F32", []int{0, 5}}, {"n", "I64", nil}},
		map[string]string{"k": "v"}, 64)
	goldentest.NoError(t, err)
	for _, err := range []error{
		w.Put("z", tensor.Of([]float32{1}, 1)), w.Put("z", tensor.Of([]float32{-2, 0.5, 0}, 3)),
		w.Put("n", tensor.OfInts([]int64{258})), w.Close(),
	} {
		goldentest.NoError(t, err)
	}
	h := `{"__metadata__":{"k":"v"},"z":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},` +
		`"none":{"dtype":"F32","shape":[0,5],"data_offsets":[16,16]},` +
		`"n":{"dtype":"I64","shape":[],"data_offsets":[16,24]}}`
	h += strings.Repeat(" ", 248-len(h))
	want := string(binary.LittleEndian.AppendUint64(nil, uint64(len(h)))) + h +
		"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\x00\x00\x00\x00" + "\x02\x01\x00\x00\x00\x00\x00\x00"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	infos := []Info{{"F32", []int{2, 2}, 256, 16}, {"F32", []int{0, 5}, 272, 0}, {"I64", []int{}, 272, 8}}
	if d := cmp.Diff(infos, w.Infos()); d != "" {
		t.Error(d)
	}
	if _, err := Parse(bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		t.Error(err)
	}
}

func TestStreamRefuses(t *testing.T) {
	a, b := Entry{"a", "F32", []int{2}}, Entry{"b", "F32", []int{1}}
	for _, c := range []struct {
		want    string
		entries []Entry
		align   int
	}{
		{"cannot name", []Entry{{"__metadata__", "F32", nil}}, 8},
		{"cannot name", []Entry{{"\xff", "F32", nil}}, 8},
		{"a name of 513 bytes", []Entry{{strings.Repeat("n", 513), "F32", nil}}, 8},
		{`two tensors are named "a"`, []Entry{a, a}, 8},
		{`declared as "BF16"`, []Entry{{"a", "BF16", nil}}, 8},
		{"negative", []Entry{{"a", "F32", []int{-1}}}, 8},
		{"overflows", []Entry{{"a", "F32", []int{math.MaxInt, 2}}}, 8},
		{"beyond 2^62", []Entry{{"a", "F32", []int{1 << 59}}, {"b", "F32", []int{1 << 59}},
			{"c", "F32", []int{1 << 59}}}, 8},
		{"alignment to 4 bytes", nil, 4},
		{"alignment to 12 bytes", nil, 12},
	} {
		var out bytes.Buffer
		if _, err := NewWriter(&out, c.entries, nil, c.align); err == nil || !strings.Contains(err.Error(), c.want) ||
			out.Len() > 0 {
			t.Errorf("error %v and %d bytes, want %q", err, out.Len(), c.want)
		}
	}
	one := tensor.New(1)
	for _, c := range []struct {
		want string
		put  func(w *Writer) error
	}{
		{`tensor "a" lacks 4 bytes, so "b" cannot begin`, func(w *Writer) error {
			return errors.Join(w.Put("a", one), w.Put("b", one))
		}},
		{`tensor "a" lacks 4 bytes`, func(w *Writer) error { return errors.Join(w.Put("a", one), w.Close()) }},
		{`tensor "b" lacks 4 bytes`, func(w *Writer) error {
			return errors.Join(w.Put("a", tensor.New(2)), w.Close())
		}},
		{`tensor "a" has more values than the shape [2]`, func(w *Writer) error { return w.Put("a", tensor.New(3)) }},
		{`tensor "a" is int64[1], was declared as F32`, func(w *Writer) error {
			return w.Put("a", tensor.OfInts([]int64{1}, 1))
		}},
		{`tensor "a": want floats or integers`, func(w *Writer) error { return w.Put("a", nil) }},
		{`tensor "c" was not declared`, func(w *Writer) error {
			return errors.Join(w.Put("a", tensor.New(2)), w.Put("b", one), w.Put("c", one))
		}},
	} {
		w, err := NewWriter(&bytes.Buffer{}, []Entry{a, b}, nil, 8)
		goldentest.NoError(t, err)
		goldentest.WantError(t, c.put(w), c.want)
		goldentest.WantError(t, w.Close(), c.want)
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, fmt.Errorf("the disk is full")
	}
	return len(p), nil
}

func TestStreamTellsOfFailedWrites(t *testing.T) {
	w, err := NewWriter(&full{1 << 17}, []Entry{{"a", "F32", []int{1 << 18}}}, nil, 8)
	goldentest.NoError(t, err)
	goldentest.WantError(t, w.Put("a", tensor.New(1<<18)), "the disk is full")
	goldentest.WantError(t, w.Close(), "the disk is full")
}

// 1/3 in half precision is 0x3555 = 1365/4096 (IEEE 754 binary16: 11 bits of significand, exponent -2), 65504 is the
// largest finite number, and 65520 would round to infinity.
func TestHalfPrecision(t *testing.T) {
	path := filepath.Join(t.TempDir(), "half.safetensors")
	m := tensor.Map{"a": tensor.Of([]float32{1.0 / 3, -65504, 0}, 3), "n": tensor.OfInts([]int64{7}, 1)}
	goldentest.NoError(t, WriteHalfFile(path, m, nil))
	back, _, err := ReadFile(path)
	goldentest.NoError(t, err)
	if got := back["a"].Data; got[0] != 1365.0/4096 || got[1] != -65504 || got[2] != 0 || back["n"].Ints[0] != 7 {
		t.Errorf("%v %v", got, back["n"])
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 200 {
		t.Errorf("%v bytes", st.Size())
	}
	if err := WriteHalfFile(path, tensor.Map{"a": tensor.Of([]float32{65520}, 1)}, nil); err == nil {
		t.Error("an overflow is written")
	}
}
