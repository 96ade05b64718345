package preprocess

import (
	"image"
	"image/color"
)

// raster is an image of packed red, green and blue bytes. Decode returns a raster, so that several views of an image
// convert it only once.
type raster struct {
	w, h int
	pix  []byte
}

func newRaster(w, h int) *raster { return &raster{w, h, make([]byte, 3*w*h)} }

func (r *raster) ColorModel() color.Model { return color.RGBAModel }
func (r *raster) Bounds() image.Rectangle { return image.Rect(0, 0, r.w, r.h) }
func (r *raster) At(x, y int) color.Color {
	if x < 0 || y < 0 || x >= r.w || y >= r.h {
		return color.RGBA{}
	}
	p := r.pix[3*(y*r.w+x):]
	return color.RGBA{p[0], p[1], p[2], 255}
}

// rasterOf converts like Pillow's convert("RGB"): alpha is dropped without blending, so the colour of transparent
// pixels is visible.
func rasterOf(img image.Image) *raster {
	if r, ok := img.(*raster); ok {
		return r
	}

	b := img.Bounds()
	r := newRaster(b.Dx(), b.Dy())
	at, to := reader(img), r.pix
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			to[0], to[1], to[2] = at(x, y)
			to = to[3:]
		}
	}

	return r
}

// RGB returns the colours of an image that Pixels uses, three bytes per pixel, row by row. They must not be changed.
func RGB(img image.Image) (pixels []byte, width, height int) {
	r := rasterOf(img)
	return r.pix, r.w, r.h
}

// reader returns a function that reads a pixel as red, green and blue.
func reader(img image.Image) func(x, y int) (r, g, b byte) {
	switch source := img.(type) {
	case *image.Gray:
		return func(x, y int) (byte, byte, byte) {
			v := source.Pix[source.PixOffset(x, y)]
			return v, v, v
		}
	case *image.Gray16:
		return func(x, y int) (byte, byte, byte) {
			v := source.Pix[source.PixOffset(x, y)]
			return v, v, v
		}
	case *image.NRGBA64:
		return func(x, y int) (byte, byte, byte) {
			p := source.Pix[source.PixOffset(x, y):]
			return p[0], p[2], p[4]
		}
	case *image.YCbCr:
		return func(x, y int) (byte, byte, byte) {
			at, c := source.YOffset(x, y), source.COffset(x, y)
			return color.YCbCrToRGB(source.Y[at], source.Cb[c], source.Cr[c])
		}
	case studio:
		return func(x, y int) (byte, byte, byte) {
			at, c := source.YOffset(x, y), source.COffset(x, y)
			return source.rgb(source.Y[at], source.Cb[c], source.Cr[c])
		}
	case *image.NYCbCrA:
		return reader(&source.YCbCr)
	case *image.CMYK:
		return func(x, y int) (byte, byte, byte) {
			c := source.CMYKAt(x, y)
			return ink(c.C, c.K), ink(c.M, c.K), ink(c.Y, c.K)
		}
	case *image.Paletted:
		var table [256]color.NRGBA // a damaged file has indices without a colour
		for i, c := range source.Palette[:min(len(source.Palette), len(table))] {
			table[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		return func(x, y int) (byte, byte, byte) {
			c := table[source.ColorIndexAt(x, y)]
			return c.R, c.G, c.B
		}
	case *image.NRGBA:
		return func(x, y int) (byte, byte, byte) {
			c := source.NRGBAAt(x, y)
			return c.R, c.G, c.B
		}
	}

	return func(x, y int) (byte, byte, byte) {
		c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
		return c.R, c.G, c.B
	}
}

// ink returns Pillow's colour of one ink under black: white less black less the product of both, rounded, over 255.
func ink(c, k byte) byte {
	white := 255 - int(k)
	t := int(c)*white + 128
	return byte(white - (t>>8+t)>>8)
}

// studio is an image whose luma ranges from 16 to 235 and whose chroma ranges from 16 to 240 (ITU-R BT.601), as lossy
// WebP stores it; image.YCbCr means JPEG's full range, and golang.org/x/image/webp does not convert.
type studio struct{ *image.YCbCr }

func studioRange(m image.Image) image.Image {
	switch m := m.(type) {
	case *image.YCbCr:
		return studio{m}
	case *image.NYCbCrA:
		return studio{&m.YCbCr}
	}
	return m
}

// rgb is libwebp's conversion in its fixed-point arithmetic: factors have 14 bits, of which each product drops 8, and
// the offsets of 16 and 128 are combined.
func (s studio) rgb(y, cb, cr byte) (r, g, b byte) {
	l, u, v := int(y)*19077>>8, int(cb), int(cr)
	to := func(v int) byte { return byte(min(max(v>>6, 0), 255)) }
	return to(l + v*26149>>8 - 14234), to(l - u*6419>>8 - v*13320>>8 + 8708), to(l + u*33050>>8 - 17685)
}
