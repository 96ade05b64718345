package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// A failure half-way leaves the old file and no temporary file, and its error names the file.
func TestFailureChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	goldentest.NoError(t, Write(path, text("old")))
	full := errors.New("no space left")
	err := Write(path, func(w io.Writer) error { io.WriteString(w, "half"); return full })
	if !errors.Is(err, full) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("the file holds %q", b)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%d files are left", len(list))
	}
	if err := Write(filepath.Join(dir, "none", "f"), text("x")); err == nil {
		t.Error("a missing folder is no error")
	}
}

// Write keeps the mode of a file that it replaces.
func TestKeepsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	goldentest.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	goldentest.NoError(t, Write(path, text("new")))
	st, err := os.Stat(path)
	if b, _ := os.ReadFile(path); err != nil || string(b) != "new" || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v, content %q", err, st.Mode(), b)
	}
}
