package unpickle

import (
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
