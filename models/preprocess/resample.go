package preprocess

import (
	"math"

	"promptfed/runtime/graph"
)

// The resampler is Pillow's (versions: doc.go), in its fixed-point arithmetic: one pass along rows, rounding to 8 bits,
// one pass along columns. golang.org/x/image/draw.CatmullRom has the same kernel but no rounding between the
// passes and other borders: on 20 PACS images at 224 x 224 it differs from Pillow in 22 % of the values and by up to 15
// levels, and features of a frozen tower should not depend on that. Sources: Pillow, "Image.resize", and the kernel of
// Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981), equation 15 with a = -1/2.

// precision is the number of fraction bits of a weight: 32 minus 8 for a value and 2 for the overshoot of a cubic.
const precision = 32 - 8 - 2

// filter is a kernel that is zero outside support, in input pixels at scale 1.
type filter struct {
	support float64
	at      func(x float64) float64
	node    func(x graph.Node) graph.Node // at for every element of a double node, with the same rounding
}

var filters = map[string]filter{
	Bilinear: {1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }, bilinearNode},
	Bicubic:  {2, cubic, cubicNode},
}

// cubic writes every product as float64(...) so that no processor fuses it with a sum, which would change the last
// bits.
func cubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64((float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return float64((float64((float64((x-5)*x)+8)*x) - 4) * a)
	}

	return 0
}

// box is a part of the source, in its pixels.
type box struct{ left, top, width, height int }

// frame is the square of size pixels, starting at left and top, of a picture of width x height; a smaller picture is
// centred and surrounded by fill. Only this square is computed, so a 1 x 1,000,000 image costs little more than its
// own pixels and the weights of one side.
type frame struct {
	width, height, left, top, size int
	fill                           byte
}

// weights holds, for each output pixel of one axis, the first input pixel, and the weights of it and its successors.
type weights struct {
	first, count []int
	value        []int32 // stride numbers for each output pixel
	stride       int
}

func (w *weights) set(in, out, from, n int, filter filter) {
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support := float64(filter.support * wide)
	w.stride = int(math.Ceil(support))*2 + 1
	w.first = grow(w.first, n)
	w.count = grow(w.count, n)
	w.value = grow(w.value, n*w.stride)
	kernel := make([]float64, w.stride)
	inverse := 1 / wide
	for i := range n {
		middle := float64((float64(from+i) + 0.5) * scale)
		lo := max(int(middle-support+0.5), 0)
		hi := min(int(middle+support+0.5), in)
		sum := 0.0
		for x := lo; x < hi; x++ {
			kernel[x-lo] = filter.at(float64((float64(x) - middle + 0.5) * inverse))
			sum += kernel[x-lo]
		}

		w.first[i], w.count[i] = lo, hi-lo
		for x := range hi - lo {
			v := kernel[x]
			if sum != 0 {
				v /= sum
			}
			w.value[i*w.stride+x] = int32(float64(v*(1<<precision)) + math.Copysign(0.5, v))
		}
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// scratch is the reused memory of one resampling.
type scratch struct {
	across, down weights
	rows, out    []byte
}

// resample returns the frame as size x size pixels of red, green and blue. The result is valid until the next call.
func (s *scratch) resample(src *raster, box box, frame frame, filter filter) []byte {
	columns, lines := min(frame.size, frame.width), min(frame.size, frame.height)
	s.out = grow(s.out, 3*frame.size*frame.size)
	if box.width == 0 || box.height == 0 {
		clear(s.out)
		return s.out
	}

	if columns < frame.size || lines < frame.size {
		for i := range s.out {
			s.out[i] = frame.fill
		}
	}

	s.across.set(box.width, frame.width, frame.left, columns, filter)
	s.down.set(box.height, frame.height, frame.top, lines, filter)
	lo := s.down.first[0]
	hi := s.down.first[lines-1] + s.down.count[lines-1]
	s.rows = grow(s.rows, 3*columns*(hi-lo))
	for y := lo; y < hi; y++ {
		line := src.pix[3*((box.top+y)*src.w+box.left):][:3*box.width]
		into := s.rows[3*columns*(y-lo):][:3*columns]
		for x := range columns {
			first, count := s.across.first[x], s.across.count[x]
			var red, green, blue int32 = 1 << (precision - 1), 1 << (precision - 1), 1 << (precision - 1)
			from := line[3*first:][:3*count]
			for i, v := range s.across.value[x*s.across.stride:][:count] {
				p := from[3*i:][:3:3]
				red += int32(p[0]) * v
				green += int32(p[1]) * v
				blue += int32(p[2]) * v
			}
			into[3*x], into[3*x+1], into[3*x+2] = clip(red), clip(green), clip(blue)
		}
	}

	sums := make([]int32, 3*columns)
	place := 3 * ((frame.size-lines)/2*frame.size + (frame.size-columns)/2)
	for row := range lines {
		for i := range sums {
			sums[i] = 1 << (precision - 1)
		}
		for i, v := range s.down.value[row*s.down.stride:][:s.down.count[row]] {
			line := s.rows[3*columns*(s.down.first[row]+i-lo):][:3*columns]
			for x, p := range line {
				sums[x] += int32(p) * v
			}
		}
		for x, v := range sums {
			s.out[place+3*frame.size*row+x] = clip(v)
		}
	}

	return s.out
}

func clip(v int32) byte { return byte(min(max(v>>precision, 0), 255)) }
