package preprocess

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// pngHeader is a PNG that claims a size and has no data.
func pngHeader(w, h uint32) []byte {
	chunk := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	chunk = append(chunk, 8, 2, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(out, chunk...), crc32.ChecksumIEEE(chunk))
}

// fax is a TIFF that Pillow 13.0.0 wrote (compression group4, photometric interpretation 1): 16 by 1 pixels, the first
// five black.
const fax = "II*\x00\x0e\x00\x00\x008\x14\x00@\x04\x00\x09\x00\x00\x01\x03\x00\x01\x00\x00\x00" +
	"\x10\x00\x00\x00\x01\x01\x03\x00\x01\x00\x00\x00\x01\x00\x00\x00\x02\x01\x03\x00\x01\x00\x00\x00" +
	"\x01\x00\x00\x00\x03\x01\x03\x00\x01\x00\x00\x00\x04\x00\x00\x00\x06\x01\x03\x00\x01\x00\x00\x00" +
	"\x01\x00\x00\x00\x11\x01\x04\x00\x01\x00\x00\x00\x08\x00\x00\x00\x16\x01\x03\x00\x01\x00\x00\x00" +
	"\x01\x00\x00\x00\x17\x01\x04\x00\x01\x00\x00\x00\x05\x00\x00\x00\x1c\x01\x03\x00\x01\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00"

func TestDecodeErrors(t *testing.T) {
	noise, flat := filetest.Read(t, "testdata/noise.png"), filetest.Read(t, "testdata/flat.bmp")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "not a JPEG"},
		{"text", []byte("hello, world"), "not a JPEG"},
		{"cut header", noise[:20], "damaged png header"},
		{"cut data", noise[:len(noise)/2], "damaged png"},
		{"bomb", pngHeader(1<<20, 1<<20), "the limit is 67108864"},
		{"long file", make([]byte, maxBytes+1), "more than 64 MiB"},
		{"fax", []byte(fax), "CCITT compression in which 1 is not black: convert it"},
		// Values that the formats define and the decoders lack: an arithmetic JPEG (SOF9), a TIFF compressed as JPEG
		// (7), and a run-length BMP (1).
		{"arithmetic", bytes.Replace(filetest.Read(t, "testdata/colour.jpg"), []byte("\xff\xc0"), []byte("\xff\xc9"),
			1), "image: unsupported JPEG feature"},
		{"JPEG in TIFF", []byte(strings.Replace(fax, "\x03\x01\x03\x00\x01\x00\x00\x00\x04",
			"\x03\x01\x03\x00\x01\x00\x00\x00\x07", 1)), "image: tiff: unsupported feature: compression value 7: "},
		{"runs", slices.Concat(flat[:30], []byte{1}, flat[31:]), "image: bmp: unsupported BMP image: convert it to " +
			"PNG"},
	} {
		_, err := Decode(bytes.NewReader(c.data))
		goldentest.WantErrorOf(t, c.name, err, c.want)
	}
}

// TestOtherLayouts: the same picture in other memory layouts, and as a part of a larger one, gives the same pixels.
func TestOtherLayouts(t *testing.T) {
	img := open(t, "testdata/noise.png").(*raster)
	n64 := image.NewNRGBA64(img.Bounds())
	big := image.NewNRGBA(image.Rect(-3, -2, img.w+9, img.h+7))
	plain := image.NewRGBA(img.Bounds())
	for y := range img.h {
		for x := range img.w {
			n64.Set(x, y, img.At(x, y))
			big.Set(x, y, img.At(x, y))
			plain.Set(x, y, img.At(x, y))
		}
	}
	for _, other := range []image.Image{n64, plain, big.SubImage(img.Bounds())} {
		if !bytes.Equal(rasterOf(other).pix, img.pix) {
			t.Errorf("%T differs", other)
		}
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	goldentest.NoError(f, err)
	for _, name := range files {
		if strings.HasSuffix(name, ".json") {
			continue
		}
		data := filetest.Read(f, name)
		f.Add(data)
	}
	f.Add(pngHeader(1<<31-1, 1<<31-1))
	p := CLIP(8)
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := DecodeIf(bytes.NewReader(data), func(pixels int) error {
			if pixels > 1<<16 {
				return errors.New("large")
			}
			return nil
		})
		if err != nil {
			return
		}
		if b := img.Bounds(); b.Empty() || b.Dx()*b.Dy() > 1<<16 {
			t.Fatalf("bounds %v", b)
		}
		p.Pixels(img)
	})
}

// The limit counts pixels; one more is refused, and so are pictures without any. Outside there is nothing.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		w, h int
		want string
	}{
		{8192, 8192, ""}, {64, 1 << 20, ""}, {8193, 8192, "8193 x 8192 pixels, the limit is 67108864 in all"},
		{8192, 8193, "8192 x 8193 pixels, the limit is"}, {0, 4, "0 x 4: no pixels"}, {4, 0, "4 x 0: no pixels"},
		{-1, 4, "-1 x 4: no pixels"}, {math.MaxInt, math.MaxInt, "the limit is"}, {1, 1 << 20, ""},
		{1<<20 + 1, 1, "1048577 x 1 pixels, the limit of a side is 1048576"},
	} {
		err := fits(c.w, c.h)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d x %d: %v, want %q", c.w, c.h, err, c.want)
		}
	}
	r := newRaster(2, 3)
	for i := range r.pix {
		r.pix[i] = byte(i + 1)
	}
	for _, at := range [][2]int{{-1, 0}, {0, -1}, {2, 0}, {0, 3}} {
		if c := r.At(at[0], at[1]); c != (color.RGBA{}) {
			t.Errorf("%v is %v", at, c)
		}
	}
	if c := r.At(1, 2); c != (color.RGBA{16, 17, 18, 255}) {
		t.Errorf("the last pixel is %v", c)
	}
	for x, want := range map[float64]float64{0: 1, 1: 0, -1: 0, 0.5: 0.5625, 1.5: -0.0625, 2: 0, 3: 0} { // Keys 1981
		if got := cubic(x); got != want {
			t.Errorf("cubic(%v) is %v, want %v", x, got, want)
		}
	}
}
