package datatest

import (
	"bytes"
	"image"
	"image/color"
	_ "image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Decode reads every image format that the standard library knows.
func Decode(r io.Reader) (image.Image, error) {
	img, _, err := image.Decode(r)
	return img, err
}

// PNG returns an image of three by two pixels of one colour.
func PNG(t testing.TB, c color.Color) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 3, 2))
	for i := range 6 {
		img.Set(i%3, i/3, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Tree writes files under a new folder: names that end in / are empty folders, names that end in .png are small images,
// and every other file is text.
func Tree(t testing.TB, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, n := range names {
		path := filepath.Join(root, filepath.FromSlash(n))
		if strings.HasSuffix(n, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		raw := []byte("not an image")
		if strings.HasSuffix(n, ".png") {
			raw = PNG(t, color.RGBA{uint8(i), uint8(i >> 8), 7, 255})
		}
		writeFile(t, root, n, raw)
	}
	return root
}

// writeFile writes a file under a folder; the name has forward slashes.
func writeFile(t testing.TB, root, name string, raw []byte) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Module returns the folder of go.mod.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
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

// WantError checks that an error is one line and contains every word.
func WantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one with %q", words)
		return
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}
