package matfile

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// TestReadMAT reads every numeric type, stored compressed, plain and inside a tag.
func TestReadMAT(t *testing.T) {
	for _, file := range []string{"kinds_v7.mat", "kinds_v6.mat"} {
		raw := filetest.Read(t, datatest.Testdata(t, file))
		for _, name := range slices.Sorted(maps.Keys(datatest.Golden(t).Kinds)) {
			got, err := Read(bytes.NewReader(raw), name)
			if err != nil || !slices.Equal(got, datatest.Golden(t).Kinds[name]) {
				t.Errorf("%s %s: %v %v", file, name, got, err)
			}
		}
		got, err := Read(bytes.NewReader(raw), "grid") // [[0,1,2],[3,4,5]] column by column
		if err != nil || !slices.Equal(got, []float64{0, 3, 1, 4, 2, 5}) {
			t.Errorf("%s: %v %v", file, got, err)
		}
		_, err = Read(bytes.NewReader(raw), "complex")
		goldentest.WantError(t, err, `"complex"`, "uint8", "grid")
		vars, err := Variables(bytes.NewReader(raw))
		goldentest.NoError(t, err)
		for name, dims := range map[string][]int{"grid": {2, 3}, "int8": {1, 3}} {
			if v, err := Find(vars, name); err != nil || !slices.Equal(v.Dims, dims) {
				t.Errorf("%s: %s is %v, %v", file, name, v, err)
			}
		}
	}
}

// TestReadMATBigEndian: a big-endian file, written by hand according to the format's description.
func TestReadMATBigEndian(t *testing.T) {
	raw := append(bytes.Repeat([]byte{' '}, 124), 1, 0, 'M', 'I')
	raw = append(raw, 0, 0, 0, 14, 0, 0, 0, 56,
		0, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 11, 0, 0, 0, 0, // flags: class 11, uint16
		0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, // dimensions 1 x 2
		0, 1, 0, 1, 'v', 0, 0, 0, // name in its tag
		0, 0, 0, 4, 0, 0, 0, 4, 1, 2, 0, 3, 0, 0, 0, 0)
	if got, err := Read(bytes.NewReader(raw), "v"); err != nil || !slices.Equal(got, []float64{258, 3}) {
		t.Errorf("%v %v", got, err)
	}
}

func TestReadMATErrors(t *testing.T) {
	whole := filetest.Read(t, datatest.Testdata(t, "kinds_v7.mat"))
	change := func(at int, b ...byte) []byte {
		out := bytes.Clone(whole)
		copy(out[at:], b)
		return out
	}
	element := func(b string) []byte { return append(bytes.Clone(whole[:128]), b...) }
	flags := "\x06\x00\x00\x00\x08\x00\x00\x00\x09" + strings.Repeat("\x00", 7) // class 9, which is uint8
	for _, c := range []struct {
		raw   []byte
		words string
	}{
		{nil, "header"},
		{whole[:len(whole)-3], "truncated"},
		{whole[:131], "tag at byte 128"},
		{change(126, 'X'), "not a MATLAB 5 file"},
		{change(124, 0, 2), "7.3"},
		{change(136, 'n', 'o'), "compressed part is broken: zlib: invalid header: the file is damaged, fetch it again"},
		{change(150, 0, 0, 0, 0), "byte 128"},
		{element("\x0e\x00\x00\x00\x00\x00\x00\x00"), "array flags cannot be read: EOF"}, // a matrix of no bytes
		{element("\x0e\x00\x00\x00\x08\x00\x00\x00\x06\x00\x00\x00\xff\xff\xff\xff"), "4294967295 bytes"},
		// flags of five bytes inside their tag, which has room for four
		{element("\x0e\x00\x00\x00\x0c\x00\x00\x00\x06\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
			"flags cannot be read: a small part of more than four bytes"},
		// a matrix v of 0 x 2 numbers
		{element("\x0e\x00\x00\x00\x30\x00\x00\x00" + flags + "\x05\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00" +
			"\x02\x00\x00\x00\x01\x00\x01\x00v\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"), "it has v"},
		// a matrix int8 of 1 x 2 numbers with nothing behind their tag
		{element("\x0e\x00\x00\x00\x30\x00\x00\x00" + flags + "\x05\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00" +
			"\x02\x00\x00\x00\x01\x00\x04\x00int8\x02\x00\x00\x00\x02\x00\x00\x00"), "ends after 0 of 2 bytes"},
		{element("\x0e\x00\x00\x00\x10\x00\x00\x00" + flags), "its dimensions cannot be read: EOF: the file is"},
		// a matrix of class 4, which is text, with nothing behind its flags
		{element("\x0e\x00\x00\x00\x10\x00\x00\x00\x06\x00\x00\x00\x08\x00\x00\x00\x04" +
			strings.Repeat("\x00", 7)), "no numeric variable"},
		// compressed, but no matrix: a zlib stream (RFC 1950) of a stored block of eight zeros
		{element("\x0f\x00\x00\x00\x13\x00\x00\x00\x78\x01\x01\x08\x00\xf7\xff" + strings.Repeat("\x00", 8) +
			"\x00\x08\x00\x01"), "no numeric variable"},
	} {
		_, err := Read(bytes.NewReader(c.raw), "int8")
		goldentest.WantError(t, err, c.words)
	}
}

func FuzzMAT(f *testing.F) {
	for _, name := range []string{"kinds_v6.mat", "kinds_v7.mat", "svhn_v7.mat"} {
		raw := filetest.Read(f, datatest.Testdata(f, name))
		f.Add(raw)
		f.Add(raw[:200])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		vars, err := Variables(bytes.NewReader(raw))
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q is more than a line", err)
		}
		for _, v := range vars {
			numbers, err := v.Numbers(bytes.NewReader(raw))
			if err == nil && int64(len(numbers)) != v.size() {
				t.Fatalf("%s: %d numbers for %d", v.Name, len(numbers), v.Dims)
			}
		}
	})
}
