// Package filetest reads and writes the files of tests. It imports nothing of this module, and only tests import it.
package filetest

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// Read returns the content of the file whose path has these parts, and stops the test where it cannot.
func Read(t testing.TB, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Write writes a file and the folders above it, returns its path, and stops the test where it cannot.
func Write[T ~string | ~[]byte](t testing.TB, path string, content T) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}

	return path
}

// Folder makes the folder whose path has these parts and those above it, returns its path, and stops the test where it
// cannot.
func Folder(t testing.TB, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Copy copies a folder to a new place, and returns that.
func Copy(t testing.TB, to, from string) string {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// PNG writes an image as Write writes a file, and returns its path.
func PNG(t testing.TB, path string, img image.Image) string {
	t.Helper()
	var content bytes.Buffer
	if err := png.Encode(&content, img); err != nil {
		t.Fatal(err)
	}
	return Write(t, path, content.Bytes())
}
