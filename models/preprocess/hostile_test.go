package preprocess

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pngHeader is a PNG that claims a size and has no data.
func pngHeader(w, h uint32) []byte {
	chunk := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	chunk = append(chunk, 8, 2, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(out, chunk...), crc32.ChecksumIEEE(chunk))
}

func TestDecodeErrors(t *testing.T) {
	noise, err := os.ReadFile("testdata/noise.png")
	if err != nil {
		t.Fatal(err)
	}
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
	} {
		_, err := Decode(bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
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
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, ".json") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(pngHeader(1<<31-1, 1<<31-1))
	p := CLIP(8)
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := decode(bytes.NewReader(data), 1<<16, func(int) error { return nil })
		if err != nil {
			return
		}
		if b := img.Bounds(); b.Empty() || b.Dx()*b.Dy() > 1<<16 {
			t.Fatalf("bounds %v", b)
		}
		p.Pixels(img)
	})
}
