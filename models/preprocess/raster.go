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
	row := rowReader(img)
	for y := range r.h {
		row(b.Min.Y+y, r.pix[3*r.w*y:][:3*r.w])
	}
	return r
}

// RGB returns the colours of an image that Pixels uses, three bytes per pixel, row by row. They must not be changed.
func RGB(img image.Image) (pixels []byte, width, height int) {
	r := rasterOf(img)
	return r.pix, r.w, r.h
}

// rowReader returns a function that writes row y as red, green and blue.
func rowReader(img image.Image) func(y int, to []byte) {
	b := img.Bounds()
	x0 := b.Min.X
	switch m := img.(type) {
	case *image.Gray:
		return func(y int, to []byte) {
			grey(to, m.Pix[m.PixOffset(x0, y):], 1)
		}
	case *image.Gray16:
		return func(y int, to []byte) {
			grey(to, m.Pix[m.PixOffset(x0, y):], 2)
		}
	case *image.NRGBA:
		return func(y int, to []byte) {
			from := m.Pix[m.PixOffset(x0, y):]
			for i := 0; i < len(to)/3; i++ {
				copy(to[3*i:3*i+3], from[4*i:])
			}
		}
	case *image.NRGBA64:
		return func(y int, to []byte) {
			from := m.Pix[m.PixOffset(x0, y):]
			for i := 0; i < len(to)/3; i++ {
				to[3*i], to[3*i+1], to[3*i+2] = from[8*i], from[8*i+2], from[8*i+4]
			}
		}
	case *image.YCbCr:
		return func(y int, to []byte) {
			for i := 0; i < len(to)/3; i++ {
				at, c := m.YOffset(x0+i, y), m.COffset(x0+i, y)
				to[3*i], to[3*i+1], to[3*i+2] = color.YCbCrToRGB(m.Y[at], m.Cb[c], m.Cr[c])
			}
		}
	case studio:
		return func(y int, to []byte) {
			for i := 0; i < len(to)/3; i++ {
				at, c := m.YOffset(x0+i, y), m.COffset(x0+i, y)
				to[3*i], to[3*i+1], to[3*i+2] = m.rgb(m.Y[at], m.Cb[c], m.Cr[c])
			}
		}
	case *image.NYCbCrA:
		return rowReader(&m.YCbCr)
	case *image.CMYK:
		return func(y int, to []byte) {
			from := m.Pix[m.PixOffset(x0, y):]
			for i := 0; i < len(to)/3; i++ {
				for c := range 3 {
					to[3*i+c] = ink(from[4*i+c], from[4*i+3])
				}
			}
		}
	case *image.Paletted:
		table := make([][3]byte, 256)
		for i, c := range m.Palette[:min(len(m.Palette), 256)] {
			n := color.NRGBAModel.Convert(c).(color.NRGBA)
			table[i] = [3]byte{n.R, n.G, n.B}
		}
		return func(y int, to []byte) {
			from := m.Pix[m.PixOffset(x0, y):]
			for i := 0; i < len(to)/3; i++ {
				copy(to[3*i:], table[from[i]][:])
			}
		}
	}
	return func(y int, to []byte) {
		for i := 0; i < len(to)/3; i++ {
			n := color.NRGBAModel.Convert(img.At(x0+i, y)).(color.NRGBA)
			to[3*i], to[3*i+1], to[3*i+2] = n.R, n.G, n.B
		}
	}
}

func grey(to, from []byte, step int) {
	for i := 0; i < len(to)/3; i++ {
		v := from[step*i]
		to[3*i], to[3*i+1], to[3*i+2] = v, v, v
	}
}

// ink returns Pillow's colour of one ink under black: white less black less the product of both, rounded, over 255.
func ink(c, k byte) byte {
	white := 255 - int(k)
	t := int(c)*white + 128
	return byte(white - (t>>8+t)>>8)
}
