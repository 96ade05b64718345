package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/filetest"
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

// Temporary files are removed a day after a killed process left them, or at once where nobody else writes them.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[x]")
	for name, age := range map[string]time.Duration{".a.old.tmp": 25 * time.Hour, ".b.new.tmp": 23 * time.Hour,
		".b.old.tmp": 25 * time.Hour, ".c.new.tmp": time.Hour, "old.bin": 99 * time.Hour} {
		path, then := filepath.Join(dir, name), time.Now().Add(-age)
		filetest.Write(t, path, "")
		goldentest.NoError(t, os.Chtimes(path, then, then))
	}
	Sweep(dir, Abandoned, ".b.*.tmp", "*.bak")
	Sweep(dir, 0, ".c.*.tmp")
	if got := names(t, dir); !slices.Equal(got, []string{".a.old.tmp", ".b.new.tmp", "old.bin"}) {
		t.Errorf("%v is left", got)
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
