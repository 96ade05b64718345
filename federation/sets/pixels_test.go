package sets

import (
	"encoding/json"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/datatest"
)

// goldens are the numbers that tools/golden/sets.py wrote down with numpy and scipy.
type goldens struct {
	Kinds  map[string][]float64
	Tables map[string][2][]string
	Images map[string]struct {
		Labels []int
		Pixels [][]int // image, row, column, then grey or R, G, B
	}
	Coarse []int
}

func golden(t testing.TB) goldens {
	t.Helper()
	raw, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldens
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// wantImages compares labels and pixels with those that Python saw.
func wantImages(t *testing.T, got []data.Example, names ...string) {
	t.Helper()
	for _, name := range names {
		want, ok := golden(t).Images[name]
		if !ok || len(got) < len(want.Labels) {
			t.Errorf("%s: %d images of %d", name, len(got), len(want.Labels))
			return
		}
		if labels := data.Labels(got[:len(want.Labels)]); !slices.Equal(labels, want.Labels) {
			t.Errorf("%s: labels %v, want %v", name, labels, want.Labels)
		}
		for _, p := range want.Pixels {
			img, err := got[p[0]].Image(datatest.Decode)
			if err != nil {
				t.Fatal(err)
			}
			c := color.RGBAModel.Convert(img.At(p[2], p[1])).(color.RGBA)
			if rgb := []int{int(c.R), int(c.G), int(c.B)}; !slices.Equal(rgb[:len(p)-3], p[3:]) || len(p) == 4 &&
				(c.G != c.R || c.B != c.R) || c.A != 255 {
				t.Fatalf("%s: image %d row %d column %d is %v, want %v", name, p[0], p[1], p[2], c, p[3:])
			}
		}
		got = got[len(want.Labels):]
	}
	if len(got) > 0 {
		t.Errorf("%d images too many", len(got))
	}
}

// lay copies files of testdata into a new folder: name there, name in testdata.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	layIn(t, root, files)
	return root
}

func layIn(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, from := range files {
		raw, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnpackOnce: many goroutines that ask for compressed images unpack the file once, and leave no file behind.
func TestUnpackOnce(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	x, err := idxImages("testdata/images-idx3-ubyte.gz")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	unpacked := 0
	inflate := x.inflate
	x.inflate = func(f *os.File) (io.Reader, error) {
		mu.Lock()
		defer mu.Unlock()
		unpacked++
		return inflate(f)
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			if _, err := x.image(i % 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(tmp); unpacked != 1 || len(left) > 0 || err != nil {
		t.Errorf("unpacked %d times, left %v, %v", unpacked, left, err)
	}
}

func TestUnpackErrors(t *testing.T) {
	raw, err := os.ReadFile("testdata/svhn_v7.mat")
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 255 // inside the compressed X
	root := t.TempDir()
	path := filepath.Join(root, "train_32x32.mat")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, _, err := matDigits(f, path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.image(4)
	datatest.WantError(t, err, path, "TMPDIR")
}
