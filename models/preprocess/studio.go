package preprocess

import "image"

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
