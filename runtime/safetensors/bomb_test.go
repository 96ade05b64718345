package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// A file that is cut short at any byte is rejected with its name.
func TestCutAnywhere(t *testing.T) {
	whole := filetest.Read(t, "testdata/all.safetensors")
	path := filepath.Join(t.TempDir(), "cut.safetensors")
	filetest.Write(t, path, whole)
	for n := len(whole) - 1; n >= 0; n-- {
		goldentest.NoError(t, os.Truncate(path, int64(n)))
		f, err := Open(path)
		if err == nil {
			f.Close()
			t.Fatalf("cut to %d of %d bytes it opens", n, len(whole))
		}
		if s := err.Error(); !strings.Contains(s, path) || strings.Contains(s, "\n") {
			t.Fatalf("cut to %d bytes: error %q", n, s)
		}
	}
}

// sparse is a file of size bytes that starts with head and is zero after it; it takes no disk space.
type sparse struct {
	head []byte
	size int64
}

func (s sparse) ReadAt(p []byte, at int64) (int, error) {
	clear(p)
	if at < int64(len(s.head)) {
		copy(p, s.head[at:])
	}
	return len(p), nil
}

// The memory for a malicious header is bounded by the header's length.
func TestHeaderBombs(t *testing.T) {
	length := func(n uint64, rest string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), rest...) }
	var many strings.Builder
	many.WriteString("{")
	for i := range 1 << 17 {
		fmt.Fprintf(&many, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	for _, c := range []struct {
		name string
		file sparse
		most uint64 // bytes allocated
		want string
	}{
		{"a length of 2^62", sparse{length(1<<62, "{"), 1 << 62}, 1 << 16, "above the limit"},
		{"100 MB of zeros", sparse{length(maxHeader, ""), 1 << 40}, 1 << 16, "does not start with"},
		{"100 MB of zeros behind a brace", sparse{length(maxHeader, "{"), 1 << 40}, maxHeader + 1<<20, "not JSON"},
		{"a shape of 2^21 numbers", sparse{file(`{"a":{"shape":[`+strings.Repeat("1,", 1<<21), 0), 8 + 15 + 1<<22},
			3 << 22, "not JSON"},
		{"2^17 tensors", sparse{file(many.String(), 0), int64(8 + many.Len())}, 32 * uint64(many.Len()), "not JSON"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(c.file, c.file.size)
		runtime.ReadMemStats(&after)
		goldentest.WantErrorOf(t, c.name, err, c.want)
		if used := after.TotalAlloc - before.TotalAlloc; used > c.most {
			t.Errorf("%s: %d bytes allocated, more than %d", c.name, used, c.most)
		}
	}
}

// The memory of a tensor is bounded by its bytes in the file, for any shape: the largest growth is from a byte to an
// int64.
func TestTensorsCostWhatTheyWeigh(t *testing.T) {
	const n = 1 << 20
	raw := file(one("BOOL", fmt.Sprintf("[%d,1,1,1]", n), fmt.Sprintf("[0,%d]", n)), n)
	f, err := Parse(bytes.NewReader(raw), int64(len(raw)))
	goldentest.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := f.Tensor("a"); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 9*n {
		t.Errorf("%d bytes for a tensor of %d in the file", used, n)
	}
}
