package preprocess

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"promptfed/runtime/goldentest"
)

// Goldens are written by tools/golden/preprocess.py with Pillow 9.4 and numpy.

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	goldentest.ReadJSON(t, filepath.Join("testdata", name), into)
}

func open(t testing.TB, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	goldentest.NoError(t, err)
	defer f.Close()
	img, err := Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return img
}

func sha(b []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

func floats(v []float32) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return out
}

// quantised undoes the normalisation: bytes as [S,S,3].
func (p Preprocess) quantised(v []float32) []byte {
	n := p.Size * p.Size
	out := make([]byte, 3*n)
	for c := range 3 {
		for i := range n {
			out[3*i+c] = byte(math.Round(float64(v[c*n+i]*p.Std[c]+p.Mean[c]) * 255))
		}
	}
	return out
}

func TestAgainstPillow(t *testing.T) {
	var rows []struct {
		File          string
		Width, Height int
		RGB           string
		Cases         []struct {
			Size          int
			Resize        string
			Crop, Longest bool
			Fill          uint8
			Bytes, Pixels string
		}
		Views []struct {
			Box    [4]int
			Flip   bool
			Pixels string
		}
	}
	readJSON(t, "golden.json", &rows)
	for _, r := range rows {
		img := open(t, filepath.Join("testdata", r.File))
		if b := img.Bounds(); b.Dx() != r.Width || b.Dy() != r.Height || sha(img.(*raster).pix) != r.RGB {
			t.Errorf("%s: decoded %v, colours differ from Pillow's", r.File, b)
			continue
		}
		for _, c := range r.Cases {
			p := CLIP(c.Size)
			p.Resize, p.Crop, p.Longest, p.Fill = c.Resize, c.Crop, c.Longest, c.Fill
			got := p.Pixels(img)
			if sha(p.quantised(got)) != c.Bytes {
				t.Errorf("%s %d %s crop %v longest %v: bytes differ", r.File, c.Size, c.Resize, c.Crop, c.Longest)
			} else if sha(floats(got)) != c.Pixels {
				t.Errorf("%s %d %s crop %v: normalised values differ", r.File, c.Size, c.Resize, c.Crop)
			}
		}
		for _, v := range r.Views {
			p := CLIP(40)
			got := p.Normalise(p.levels(rasterOf(img), box{v.Box[0], v.Box[1], v.Box[2], v.Box[3]}, p.whole(), v.Flip))
			if sha(floats(got)) != v.Pixels {
				t.Errorf("%s box %v flip %v differs", r.File, v.Box, v.Flip)
			}
		}
	}
}

func TestRandomBox(t *testing.T) {
	var rows []struct {
		W, H  int
		Draws []float64
		Box   [4]int
	}
	readJSON(t, "boxes.json", &rows)
	for _, r := range rows {
		i := 0
		got := randomBox(r.W, r.H, func() float64 { i++; return r.Draws[i-1] })
		if want := (box{r.Box[0], r.Box[1], r.Box[2], r.Box[3]}); got != want {
			t.Errorf("%d x %d: got %v, want %v", r.W, r.H, got, want)
		}
	}
}

// compare returns the mean and the largest difference of two byte images.
func compare(t *testing.T, a, b []byte) (mean float64, most int) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d bytes, want %d", len(a), len(b))
	}
	for i := range a {
		d := int(a[i]) - int(b[i])
		d = max(d, -d)
		mean += float64(d) / float64(len(a))
		most = max(most, d)
	}
	return mean, most
}

// TestLossy limits the difference of lossy decoders from Pillow's, over whole pictures.
func TestLossy(t *testing.T) {
	var rows []struct {
		Path   string
		Pixels []byte
	}
	readJSON(t, "lossy.json", &rows)
	limits := map[string]int{"lossy.webp": 8, "lossyalpha.webp": 8, "colour.jpg": 8, "full.jpg": 2, "ink.jpg": 2,
		"grey.jpg": 2}
	for _, r := range rows {
		mean, most := compare(t, open(t, filepath.Join("testdata", r.Path)).(*raster).pix, r.Pixels)
		t.Logf("%s: mean %.3f, most %d levels", r.Path, mean, most)
		if limit, ok := limits[r.Path]; !ok || most > limit {
			t.Errorf("%s: off by %d levels, limit %d", r.Path, most, limit)
		}
	}
}

// TestJPEGAgainstPillow measures the effect of image/jpeg's chroma on real photographs.
func TestJPEGAgainstPillow(t *testing.T) {
	var rows []struct {
		Path   string
		Pixels []byte
	}
	readJSON(t, "pacs.json", &rows)
	root := goldentest.Shared(t, "pacs")
	p := CLIP(32)
	sum, top := 0.0, 0
	for _, r := range rows {
		mean, most := compare(t, p.quantised(p.Pixels(open(t, filepath.Join(root, r.Path)))), r.Pixels)
		sum += mean / float64(len(rows))
		top = max(top, most)
	}
	t.Logf("%d photographs: mean %.3f, most %d levels", len(rows), sum, top)
	if sum > 0.5 || top > 16 {
		t.Errorf("mean %.3f, most %d levels", sum, top)
	}
}

// TestAugment: one seed gives one view, also under concurrent use; views of different seeds differ.
func TestAugment(t *testing.T) {
	img := open(t, "testdata/noise.png")
	p := CLIP(24)
	var want [8][]byte
	for i := range want {
		want[i] = p.Levels(img, rand.New(rand.NewPCG(1, uint64(i))))
		if i > 0 && slices.Equal(want[0], want[i]) {
			t.Errorf("views 0 and %d are equal", i)
		}
	}
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			if !slices.Equal(p.Levels(img, rand.New(rand.NewPCG(1, uint64(i)))), want[i]) {
				t.Errorf("view %d changed", i)
			}
		})
	}
	wg.Wait()
}

// TestCentre has the first pixels of the centres of torchvision 0.29.2 and of transformers 5.24 (CLIPImageProcessor,
// with torchvision and with Pillow).
func TestCentre(t *testing.T) {
	for side, want := range map[int][2]int{32: {0, 0}, 33: {0, 0}, 34: {1, 1}, 35: {2, 1}, 37: {2, 2}, 39: {4, 3}} {
		if got := [2]int{CLIP(32).centre(side), Preprocess{Size: 32, Floor: true}.centre(side)}; got != want {
			t.Errorf("%d: %v, want %v", side, got, want)
		}
	}
}

// TestFlipRate: the mirror image of a picture with a black left half is black on the right.
func TestFlipRate(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 40, 40))
	for i := range img.Pix {
		img.Pix[i] = byte(6 * (i % 40))
	}
	p := CLIP(8)
	flips := 0
	for i := range 400 {
		v := p.Levels(img, rand.New(rand.NewPCG(2, uint64(i))))
		if v[0] > v[3*7] {
			flips++
		}
	}
	if flips < 160 || flips > 240 { // 200 expected, standard deviation 10
		t.Errorf("%d of 400 mirrored", flips)
	}
}

// TestLongImage: 1 x 1,000,000 would become 224 x 224,000,000 if it were resized completely.
func TestLongImage(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 1, 1_000_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := len(CLIP(224).Pixels(img)); got != 3*224*224 {
		t.Errorf("%d values", got)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d MiB", used>>20)
	}
	if v := CLIP(2).Pixels(image.NewGray(image.Rectangle{})); len(v) != 12 {
		t.Errorf("empty image: %v", v)
	}
}

func BenchmarkPixels(b *testing.B) {
	for _, side := range []int{128, 1024} {
		img := image.NewNRGBA(image.Rect(0, 0, side, side))
		for i := range img.Pix {
			img.Pix[i] = byte(i * 31)
		}
		r := rasterOf(img)
		p := CLIP(224)
		b.Run(map[int]string{128: "128", 1024: "1024"}[side], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Pixels(r)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}

func TestString(t *testing.T) {
	squashed := CLIP(64)
	squashed.Crop, squashed.Mean, squashed.Std = false, [3]float32{0.5, 0.5, 0.5}, [3]float32{0.25, 0.25, 0.25}
	filled, floor := squashed, CLIP(64)
	floor.Mean, floor.Std, floor.Floor = squashed.Mean, squashed.Std, true
	filled.Longest, filled.Fill = true, 127
	const half = "; mean [0.5 0.5 0.5], standard deviation [0.25 0.25 0.25]"
	for want, p := range map[string]Preprocess{
		"224 x 224 pixels, bicubic, the centre of the shorter side cropped; mean [0.4815 0.4578 0.4082], " +
			"standard deviation [0.2686 0.2613 0.2758]": CLIP(224),
		"64 x 64 pixels, bicubic, the centre of the shorter side cropped with margins rounded down" + half: floor,
		"64 x 64 pixels, bicubic, squashed to a square" + half:                                             squashed,
		"64 x 64 pixels, bicubic, margins of grey level 127" + half:                                        filled,
	} {
		if got := p.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
