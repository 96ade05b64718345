package datatest

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
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
	goldentest.NoError(t, png.Encode(&b, img))

	return b.Bytes()
}

// Tree writes files under a new folder: names that end in / are empty folders, names that end in .png are small images,
// and every other file is text.
func Tree(t testing.TB, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, name := range names {
		path := filepath.Join(root, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			goldentest.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		raw := []byte("not an image")
		if strings.HasSuffix(name, ".png") {
			raw = PNG(t, color.RGBA{uint8(i), uint8(i >> 8), 7, 255})
		}
		writeFile(t, root, name, raw)
	}

	return root
}

// writeFile writes a file under a folder; the name has forward slashes.
func writeFile(t testing.TB, root, name string, raw []byte) {
	t.Helper()
	filetest.Write(t, filepath.Join(root, filepath.FromSlash(name)), raw)
}

// Main runs the tests of a package with one temporary folder for all of them, removes the folder and exits, as TestMain
// must.
func Main(m *testing.M, dir *string) {
	var err error
	if *dir, err = os.MkdirTemp("", "promptfed-test"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(*dir)
	os.Exit(code)
}

// Photo writes a JPEG of 90 by 72 pixels with the properties that photographs have and drawings lack: gradients, soft
// shapes, texture and noise in all colours, so that hardly any two pixels are equal and sums of all sizes are rounded.
// Images of one class have similar shapes; class and seed determine every pixel.
func Photo(t testing.TB, path string, class, seed int) {
	t.Helper()
	const width, height = 90, 72
	random := rand.New(rand.NewPCG(uint64(class), uint64(seed)))
	type wave struct{ x, y, phase, size float64 }
	var waves [3][6]wave
	for c := range waves {
		for k := range waves[c] {
			f := float64(1+k) * (1 + 0.4*float64(class))
			waves[c][k] = wave{f * random.NormFloat64(), f * random.NormFloat64(), 7 * random.Float64(),
				70 / float64(1+k)}
		}
	}

	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		for c := range waves {
			v := 128 + 12*random.NormFloat64()
			for _, w := range waves[c] {
				v += w.size * math.Sin(w.phase+w.x*float64(i%width)/width+w.y*float64(i/width)/height)
			}
			picture.Pix[4*i+c] = byte(min(max(v, 0), 255))
		}
		picture.Pix[4*i+3] = 255
	}

	var b bytes.Buffer
	goldentest.NoError(t, jpeg.Encode(&b, picture, &jpeg.Options{Quality: 90}))

	writeFile(t, filepath.Dir(path), filepath.Base(path), b.Bytes())
}

// Goldens are the numbers that tools/golden/sets.py computed with numpy and scipy.
type Goldens struct {
	Kinds  map[string][]float64
	Tables map[string][2][]string
	Images map[string]struct {
		Labels []int
		Pixels [][]int // image, row, column, then grey or R, G, B
	}
	Coarse []int
}

// Golden reads the numbers of want.json.
func Golden(t testing.TB) Goldens {
	t.Helper()
	var g Goldens
	goldentest.ReadJSON(t, Testdata(t, "want.json"), &g)
	return g
}

// CopyTestdata copies files of testdata into a new folder; the keys are the new names.
func CopyTestdata(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	CopyTestdataTo(t, root, files)
	return root
}

// CopyTestdataTo copies files of testdata into an existing folder.
func CopyTestdataTo(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, from := range files {
		writeFile(t, root, name, []byte(ReadTestdata(t, from)))
	}
}

// Write writes text files into a folder; names have forward slashes.
func Write(t testing.TB, root string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		writeFile(t, root, name, []byte(text))
	}
	return root
}

// ReadTestdata returns the text of a file of testdata.
func ReadTestdata(t testing.TB, name string) string {
	t.Helper()
	return string(filetest.Read(t, Testdata(t, name)))
}

// Testdata returns the path of a file below federation/data/sets/testdata, for tests of any package.
func Testdata(t testing.TB, name ...string) string {
	t.Helper()
	return filepath.Join(append([]string{goldentest.Module(t), "federation", "data", "sets", "testdata"}, name...)...)
}
