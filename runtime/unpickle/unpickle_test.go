package unpickle

import (
	"fmt"
	"strings"
	"testing"
)

// The reference to a long string takes a byte more than its opcode and length, so it may pass the limit by one.
func TestBytesAreLimited(t *testing.T) {
	const long, most = "X\x10\x00\x00\x00" + "sixteen bytes...", 64
	o := Options{Bytes: most, Line: most, Marks: most, Objects: most, Outside: 16}
	for before, fits := range map[int]bool{most - 9: true, most - 8: false, most - 7: false} {
		v, size, err := o.Read(strings.NewReader("\x80\x02" + strings.Repeat("N", before) + long + ".rest"))
		if want := (Outside{At: int64(before) + 7, Length: 16, Text: true}); fits && (err != nil || v != want ||
			size != int64(before)+24) {
			t.Errorf("%d opcodes: %v of %d bytes, %v, want %v", before, v, size, err, want)
		}
		if !fits && (err == nil || err.Error() != "pickle is longer than 64 bytes") {
			t.Errorf("%d opcodes: %v, %v", before, v, err)
		}
	}
}

// Each limit takes what it names and refuses one more, as do opcodes outside the allowed ones. Places count from Start.
func TestLimits(t *testing.T) {
	limits := Options{Start: 100, Bytes: 64, Line: 4, Marks: 2, Objects: 4, Hint: ": give a file",
		Global:     func(module, name string) (any, error) { return module + "." + name, nil },
		Persistent: func(id any) (any, error) { return fmt.Sprint("the one with id ", id), nil }}
	long := strings.Repeat("x", 61)
	for _, c := range []struct {
		what, pickle, opcodes string
		outside               int64
		want                  string // the value, or the error
		size                  int64
	}{
		{"a number in a line", "I1234\n.rest", "", 0, "1234", 7},
		{"a line that is too long", "I12345\n.", "", 0, "pickle holds a line of more than 4 bytes", 0},
		{"two lines", "cmod\nname\n.", "", 0, "mod.name", 11},
		{"a second line that is too long", "cmod\nnames\n.", "", 0, "pickle holds a line of more than 4 bytes", 0},
		{"open marks", "(K\x01(tt0N.", "", 0, "<nil>", 9},
		{"too many open marks", "(((ttt.", "", 0, "pickle nests more than 2 deep", 0},
		{"marks one after the other", "(1(1(1K\x01.", "", 0, "1", 9},
		{"an end without a mark", "e(((.", "", 0, "pickle nests more than 2 deep", 0},
		{"an end of the inner mark", "((1((.", "", 0, "pickle nests more than 2 deep", 0},
		{"a persistent id", "K\x01Q.", "", 0, "the one with id 1", 4},
		{"objects", "]]]].", "", 0, "&[]", 5},
		{"too many objects", "]]]]].", "", 0, "pickle makes more than 4 objects", 0},
		{"an unknown opcode", "N\xff.", "", 0, "unknown pickle opcode 0xff at byte 101: give a file", 0},
		{"the first allowed opcode", "N.", "N.", 0, "<nil>", 2},
		{"an opcode that is not allowed", "NNK\x01.", "N.", 0,
			"pickle opcode 0x4b at byte 102 is not expected: give a file", 0},
		{"all bytes", "U\x3d" + long + ".", "", 0, long, 64},
		{"too many bytes", "NU\x3d" + long + ".", "", 0, "pickle is longer than 64 bytes", 0},
		{"a frame", "\x95\x40\x00\x00\x00\x00\x00\x00\x00N.", "", 0, "<nil>", 11},
		{"a frame that is too long", "\x95\x41\x00\x00\x00\x00\x00\x00\x00N.", "", 0,
			"pickle is longer than 64 bytes", 0},
		{"a frame around a string that stays outside", "\x95\x41\x00\x00\x00\x00\x00\x00\x00N.", "", 8, "<nil>", 11},
		{"strings below and at the length", "(U\x02abT\x03\x00\x00\x00abct.", "", 3, "&[ab {110 3 false}]", 15},
		{"a string of Unicode", "\x8d\x03\x00\x00\x00\x00\x00\x00\x00abc.", "", 3, "{109 3 true}", 13},
		{"a string of more bytes than any file", "\x8d" + strings.Repeat("\xff", 8) + ".", "", 3,
			"pickle ends before its STOP: the file is truncated, fetch it again", 0},
		{"no end", "N", "", 0, "pickle ends before its STOP: the file is truncated, fetch it again", 0},
	} {
		o := limits
		o.Opcodes, o.Outside = c.opcodes, c.outside
		v, size, err := o.Read(strings.NewReader(c.pickle))
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if got != c.want || size != c.size {
			t.Errorf("%s: %s of %d bytes, want %s of %d", c.what, got, size, c.want, c.size)
		}
	}
}
