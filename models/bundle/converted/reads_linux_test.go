package converted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
)

// bytesRead returns how many bytes this process has read so far (proc(5), rchar).
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	if _, err := fmt.Sscanf(string(filetest.Read(t, "/proc/self/io")), "rchar: %d", &n); err != nil {
		t.Skip("/proc/self/io:", err)
	}
	return n
}

// Unchanged weights are read once for their SHA-256, whoever opens the bundle, and again after they changed. A comment
// makes the file of weights large enough for the record.
func TestOpenReadsOnce(t *testing.T) {
	environment(t)
	const comment = 2 << 20
	src := filetest.Copy(t, t.TempDir(), "testdata/huggingface")
	weights := filepath.Join(src, "model.safetensors")
	tensors, _, err := safetensors.ReadFile(weights)
	goldentest.NoError(t, err)
	more := map[string]string{"format": "pt", "comment": strings.Repeat("x", comment)}
	goldentest.NoError(t, safetensors.WriteFile(weights, tensors, more))
	dir := filepath.Join(t.TempDir(), "small")
	if _, err := converted.Convert(src, dir, converted.Options{}); err != nil {
		t.Fatal(err)
	}
	orttest.Settle(t, filepath.Join(dir, "model.safetensors")) // linking the weights changed their status
	open := func() int64 {
		t.Helper()
		before := bytesRead(t)
		if _, err := bundle.Open(dir); err != nil {
			t.Fatal(err)
		}
		return bytesRead(t) - before
	}
	open()
	if n := open(); n >= comment {
		t.Errorf("%d bytes were read of a bundle that is known", n)
	}
	goldentest.NoError(t, os.Chmod(filepath.Join(dir, "model.safetensors"), 0o600))
	if n := open(); n < comment {
		t.Errorf("%d bytes were read of a bundle whose weights have another stamp", n)
	}
	goldentest.NoError(t, flip(filepath.Join(dir, "model.safetensors")))
	_, err = bundle.Open(dir)
	goldentest.WantErrorOf(t, "another byte in what was known", err, "model.safetensors: SHA-256 ")
}
