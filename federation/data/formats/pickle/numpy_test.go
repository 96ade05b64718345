package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/unpickle"
)

// Elements of each type by hand, in both byte orders.
func TestElements(t *testing.T) {
	f32 := func(v float32) string { return string(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))) }
	f64 := func(v float64) string { return string(binary.BigEndian.AppendUint64(nil, math.Float64bits(v))) }
	for _, c := range []struct {
		code string
		big  bool
		raw  string
		want string
	}{
		{"i1", false, "\xff", "-1"}, {"u1", false, "\xff", "255"}, {"b1", false, "\x01", "1"},
		{"i2", false, "\xfe\xff", "-2"},
		{"i2", true, "\xff\xfe", "-2"}, {"u2", true, "\x01\x02", "258"},
		{"u4", false, "\x04\x03\x02\x01", "16909060"},
		{"i8", true, "\x00\x00\x00\x00\x00\x00\x01\x00", "256"}, {"S4", false, "ab\x00\x00", "ab"},
		{"U2", false, "a\x00\x00\x00\xe9\x00\x00\x00", "aé"},
		{"U2", true, "\x00\x00\x00a\x00\x00\x00\x00", "a"}, {"f4", false, f32(-3), "-3"},
		{"f8", true, f64(math.MaxInt32), "2147483647"},
		{"f8", true, f64(math.MaxInt32 + 1), "2.147483648e+09 where a whole number is expected"},
		{"f4", false, f32(.5), "0.5 where a whole number is expected"},
		{"f2", false, "ab", "NaN where a whole number is expected"}, {"i3", false, "abc", "numpy type i3"},
		{"i16", false, strings.Repeat("a", 16), "numpy type i16"},
	} {
		dtype, err := newNpType(c.code)
		goldentest.NoError(t, err)
		d := dtype.(*DType)
		d.big = c.big
		a, err := newNpArray(d, []int{1}, c.raw, true)
		if err != nil || a.Fortran {
			t.Fatal(c.code, a, err)
		}
		got, err := Values(nil, a)
		if text := strings.Trim(fmt.Sprint(got, err), "[]"); !strings.Contains(text, c.want) {
			t.Errorf("%s %q: %v, %v, want %s", c.code, c.raw, got, err, c.want)
		}
	}
}

// Types and shapes at their limits, and one beyond.
func TestTypesAndShapes(t *testing.T) {
	for code, want := range map[string]string{"u1": "u 1", "U3": "U 12", "O": "O 0", "S65536": "S 65536",
		"S65537": "has no usable size", "i-1": "has no usable size",
		"ix": "has no usable size", "c16": "expected numbers", "": "expected numbers"} {
		got, err := newNpType(code)
		text := fmt.Sprint(err)
		if err == nil {
			text = fmt.Sprintf("%c %d", got.(*DType).Letter, got.(*DType).Size)
		}
		if !strings.Contains(text, want) {
			t.Errorf("%q: %s, want %s", code, text, want)
		}
	}
	if _, err := newNpType(); err == nil {
		t.Error("no type")
	}
	buffer, err := pickleGlobal("numpy._core.numeric", "_frombuffer")
	goldentest.NoError(t, err)
	_, err = buffer.(pickleCall)("abcd", &DType{Letter: 'u', Size: 2})
	goldentest.WantError(t, err, "a numpy buffer without its shape")
	_, err = pickleShape(3)
	goldentest.WantError(t, err, "a numpy array without a shape")
	for _, c := range []struct {
		dims types.Tuple
		want string
	}{{types.Tuple{}, "[] <nil>"}, {types.Tuple{2, 3}, "[2 3] <nil>"}, {types.Tuple{0}, "[0] <nil>"},
		{types.Tuple{math.MaxInt32, 4}, "[2147483647 4] <nil>"},
		{types.Tuple{math.MaxInt32, 5}, "a numpy array of shape [2147483647 5]"}, {types.Tuple{-1}, "dimension -1"},
		{types.Tuple{4, math.MaxInt32, math.MaxInt32}, "a numpy array of shape [4 2147483647 2147483647]"},
		{types.Tuple{math.MaxInt32 + 1}, "dimension 2147483648"},
		{types.Tuple{"x"}, "dimension x"}, {types.Tuple{1, 1, 1, 1, 1, 1, 1, 1}, "[1 1 1 1 1 1 1 1] <nil>"},
		{types.Tuple{1, 1, 1, 1, 1, 1, 1, 1, 1}, "dimension 1 of"}} {
		got, err := pickleShape(&c.dims)
		if text := fmt.Sprint(got, err); !strings.Contains(text, c.want) {
			t.Errorf("%v: %s, want %s", c.dims, text, c.want)
		}
	}
	var d DType
	for _, c := range []struct {
		state types.Tuple
		want  string
	}{{types.Tuple{3, ">", nil, nil, nil, 8, 1}, "true 8 <nil>"},
		{types.Tuple{3, "<", nil, nil, nil, 1 << 18, 1}, "false 262144 <nil>"},
		{types.Tuple{3, "<", nil, nil, nil, 1<<18 + 1, 1}, "false 1 <nil>"},
		{types.Tuple{3, "<", nil, nil, nil, 0, 1}, "false 1 <nil>"},
		{types.Tuple{3, ">", nil, nil, nil, 8}, "false 1 a numpy type without its state"}} {
		d = DType{Size: 1}
		err := d.PySetState(&c.state)
		if got := fmt.Sprint(d.big, d.Size, err); got != c.want {
			t.Errorf("%v: %s, want %s", c.state, got, c.want)
		}
	}
	u2 := &DType{Letter: 'u', Size: 2}
	for _, c := range []struct {
		dtype    any
		shape    []int
		elements any
		says     string
	}{
		{u2, []int{2}, "abcd", ""}, {u2, []int{2}, []byte("abcd"), ""},
		{u2, []int{2}, unpickle.Outside{Length: 4}, ""}, {u2, []int{2}, unpickle.Outside{Length: 4, Text: true}, ""},
		{u2, []int{2}, unpickle.Outside{Length: 5, Text: true},
			""},
		{u2, []int{2}, unpickle.Outside{Length: 5}, "with 5 bytes"},
		{u2, []int{2}, unpickle.Outside{Length: 3, Text: true}, "with 3 bytes"},
		{u2, []int{2}, "abc", "of shape [2] and type u2 with 3 bytes"},
		{u2, []int{2}, 7, "a numpy array of int"}, {7, nil, "", "a numpy array without a type"},
		{&DType{Letter: 'O', Size: 8}, []int{1}, "12345678", "with 8 bytes"},
		{&DType{Letter: 'O'}, []int{1}, &types.List{"a"}, ""}, {&DType{Letter: 'O'}, []int{2}, &types.List{"a"},
			"of shape [2] with 1 objects"},
		{&DType{Letter: 'U'}, []int{0}, "", ""}, {&DType{Letter: 'U'}, []int{1}, "", "with 0 bytes"},
	} {
		a, err := newNpArray(c.dtype, c.shape, c.elements, true)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v %v %v: %+v, %v", c.dtype, c.shape, c.elements, a, err)
		}
	}
}

// A list, a tuple or an array of objects holds whole numbers and strings; a single number may be an array without axes.
func TestValuesOfLists(t *testing.T) {
	five := &Array{Shape: []int{}, Dtype: DType{Letter: 'u', Size: 1}, Raw: []byte{5}}
	for _, v := range []any{&types.List{1, []byte("a"), five}, &types.Tuple{1, "a", five},
		&Array{Shape: []int{3}, Dtype: DType{Letter: 'O'}, list: []any{1, "a", five}}} {
		if got, err := Values(nil, v); err != nil || fmt.Sprint(got) != "[1 a 5]" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, err := Values(nil, &types.List{1, 2.5}); err == nil ||
		err.Error() != "element 1 of a list is float64: expected a whole number or a string" {
		t.Error(err)
	}
	if _, err := Values(nil, 7); err == nil || err.Error() != "int where a list is expected" {
		t.Error(err)
	}
	if got, err := Numbers(nil, &types.List{1, -2}); err != nil || !slices.Equal(got, []float64{1, -2}) {
		t.Error(got, err)
	}
	if _, err := Numbers(nil, &types.List{1, "x"}); err == nil || err.Error() != `label 1 is "x": expected a number` {
		t.Error(err)
	}
	// Labels may take 32 MiB in two million elements.
	for n, says := range map[int]string{1 << 21: "EOF", 1<<21 + 1: "where names or labels are expected"} {
		a := &Array{Shape: []int{n}, Dtype: DType{Letter: 'u', Size: 1},
			File: &blob{unpickle.Outside{Length: int64(n)}}}
		_, err := a.bytes(failing{})
		goldentest.WantError(t, err, says)
	}
	a := &Array{Shape: []int{1 << 20}, Dtype: DType{Letter: 'S', Size: 33}, File: &blob{}}
	_, err := a.bytes(failing{})
	goldentest.WantError(t, err, "where names or labels are expected")
	short := &Array{Shape: []int{3}, Dtype: DType{Letter: 'u', Size: 2}, File: &blob{unpickle.Outside{Length: 6}}}
	if _, err := short.values(strings.NewReader("abcde")); err == nil ||
		err.Error() != "a numpy array of 3 elements ends after 5 bytes" {
		t.Error(err)
	}
	// By hand, rows of two columns: in Fortran order the elements alternate between the rows.
	for fortran, want := range map[bool]string{false: "[1 2] [3 4]", true: "[1 3] [2 4]"} {
		two := &Array{Shape: []int{2, 2}, Dtype: DType{Letter: 'u', Size: 1}, Fortran: fortran,
			Raw: []byte{1, 2, 3, 4}}
		if x, y, err := two.rows(nil); err != nil || fmt.Sprint(*x.(*types.List), " ", *y.(*types.List)) != want {
			t.Errorf("%v: %v %v, %v", fortran, x, y, err)
		}
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errors.New("EOF of a test") }

// Bytes as text are characters up to 255.
func TestLatin1(t *testing.T) {
	if got, err := pickleLatin1("aé\u00ff", "latin1"); err != nil || got != "a\xe9\xff" {
		t.Errorf("%q, %v", got, err)
	}
	out := unpickle.Outside{At: 3}
	if got, err := pickleLatin1(out, "latin1"); err != nil || got != out {
		t.Error(got, err)
	}
	for says, args := range map[string][]any{"bytes in an encoding other than latin1": {"a", "utf8"},
		`character 'Ā' is not a byte`: {"a\u0100", "latin1"}, "int where bytes are expected": {1, "latin1"},
		"in an encoding": {"a"}} {
		_, err := pickleLatin1(args...)
		goldentest.WantError(t, err, says)
	}
	for text, want := range map[string]string{"aé\u00ff\ufffd": `a\xe9\xff character '�' is not a byte`,
		"a\xff": `a character '�' is not a byte`, "": " <nil>"} {
		raw, err := io.ReadAll((blob{unpickle.Outside{At: 1, Length: int64(len(text)), Text: true}}).Open(
			strings.NewReader("x" + text + "y")))
		if got := strings.Trim(fmt.Sprintf("%q", raw), `"`) + " " + fmt.Sprint(err); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Files of numpy.save, written by hand: a header of up to 4 KiB, and elements that fill the rest.
func TestNumpyFiles(t *testing.T) {
	build := func(version byte, header, elements string) string {
		if version > 1 {
			return "\x93NUMPY" + string([]byte{version, 0}) + string(binary.LittleEndian.AppendUint32(nil,
				uint32(len(header)))) + header + elements
		}
		return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) + header +
			elements
	}
	const head = "{'descr': '>u2', 'fortran_order': False, 'shape': (2, 1), }"
	long := head + strings.Repeat(" ", 1<<12-len(head))
	for raw, want := range map[string]string{build(1, head, "\x00\x01\x00\x02"): "[1] [2]",
		build(2, head+"  \n", "\x00\x01\x00\x02"): "[1] [2]", build(1, long, "\x00\x01\x00\x02"): "[1] [2]",
		build(1, long+" ", "\x00\x01\x00\x02"):             "the header of the numpy file is too long",
		build(1, head, "\x00\x01"):                         "with 2 bytes",
		build(1, strings.Replace(head, "u2", "c8", 1), ""): "numpy file with header"} {
		x, y, err := ReadPair(strings.NewReader(raw), int64(len(raw)))
		text := fmt.Sprint(err)
		if err == nil {
			text = fmt.Sprint(*x.(*types.List), " ", *y.(*types.List))
		}
		if !strings.Contains(text, want) {
			t.Errorf("%.80q: %s, want %s", raw, text, want)
		}
	}
}
