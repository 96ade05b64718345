package preprocess

import "image"

// studio is a picture whose luma runs from 16 to 235 and chroma from 16 to 240
// (ITU-R BT.601), which is what lossy WebP stores; image.YCbCr by itself means
// JPEG's full range, and golang.org/x/image/webp does not convert.
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

// rgb is libwebp's conversion, in its fixed point: 14 bits for the factors, of
// which 8 go at each product, and the offsets of 16 and 128 drawn together.
func (s studio) rgb(y, cb, cr byte) (r, g, b byte) {
	l, u, v := int(y)*19077>>8, int(cb), int(cr)
	to := func(v int) byte { return byte(min(max(v>>6, 0), 255)) }
	return to(l + v*26149>>8 - 14234), to(l - u*6419>>8 - v*13320>>8 + 8708), to(l + u*33050>>8 - 17685)
}
