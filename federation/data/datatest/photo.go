package datatest

import (
	"bytes"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// Photo writes a JPEG of 90 by 72 pixels with the properties that photographs have and drawings lack: gradients, soft
// shapes, texture and noise in all colours, so that hardly any two pixels are equal and sums of all sizes are rounded.
// Images of one class have similar shapes; class and seed determine every pixel.
func Photo(t testing.TB, path string, class, seed int) {
	t.Helper()
	const width, height = 90, 72
	r := rand.New(rand.NewPCG(uint64(class), uint64(seed)))
	type wave struct{ x, y, phase, size float64 }
	var waves [3][6]wave
	for c := range waves {
		for k := range waves[c] {
			f := float64(1+k) * (1 + 0.4*float64(class))
			waves[c][k] = wave{f * r.NormFloat64(), f * r.NormFloat64(), 7 * r.Float64(), 70 / float64(1+k)}
		}
	}
	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		for c := range waves {
			v := 128 + 12*r.NormFloat64()
			for _, w := range waves[c] {
				v += w.size * math.Sin(w.phase+w.x*float64(i%width)/width+w.y*float64(i/width)/height)
			}
			picture.Pix[4*i+c] = byte(min(max(v, 0), 255))
		}
		picture.Pix[4*i+3] = 255
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, picture, &jpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Dir(path), filepath.Base(path), b.Bytes())
}
