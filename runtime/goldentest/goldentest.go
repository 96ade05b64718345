// Package goldentest has what tests of every package need: files of expected values, expected errors
// and expected parts of texts. Of this module it imports filetest and
// tensor, and only tests import it.
package goldentest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/tensor"
)

// ReadJSON reads a JSON file, which gzip packed if its name ends so, into a value.
func ReadJSON(t testing.TB, path string, into any) {
	t.Helper()
	var text io.Reader = bytes.NewReader(filetest.Read(t, path))
	if strings.HasSuffix(path, ".gz") {
		unpacked, err := gzip.NewReader(text)
		if err != nil {
			t.Fatal(path, err)
		}
		text = unpacked
	}

	content, err := io.ReadAll(text)
	if err == nil {
		err = json.Unmarshal(content, into)
	}

	if err != nil {
		t.Fatal(path, err)
	}
}

// Fact holds what tools/golden/checkpoint.py writes of a tensor that PyTorch reads.
type Fact struct {
	Shape  []int  `json:"shape"`
	SHA256 string `json:"sha256"`
}

// FactOf hashes the little-endian float32 or int64 values, as tools/golden/checkpoint.py does with PyTorch's values.
func FactOf(t *tensor.Tensor) Fact {
	var values bytes.Buffer
	if t.IsInt() {
		binary.Write(&values, binary.LittleEndian, t.Ints)
	} else {
		binary.Write(&values, binary.LittleEndian, t.Data)
	}
	hash := sha256.Sum256(values.Bytes())
	return Fact{append([]int{}, t.Shape...), hex.EncodeToString(hash[:])[:32]}
}

// JSON returns the JSON text of a value.
func JSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	NoError(t, err)
	return text
}

// Module returns the folder of go.mod.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// Shared returns the path of a folder of real images beside the module, or skips the test.
func Shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Module(t), "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skip("no shared/data beside the module")
	}
	return path
}

// NoError stops a test on an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError checks that an error is one line that contains every word.
func WantError(t testing.TB, err error, words ...string) {
	t.Helper()
	WantErrorOf(t, "error", err, words...)
}

// WantErrorOf is WantError where a failure has to say what the error is of.
func WantErrorOf(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: none; want one with %q", what, words)
		return
	}

	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %q is more than a line", what, err)
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %q does not say %q", what, err, word)
		}
	}
}

// Contains checks that a text contains every part.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
