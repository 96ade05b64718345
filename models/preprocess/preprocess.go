package preprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// Names of resampling filters.
const (
	Bicubic  = "bicubic"
	Bilinear = "bilinear"
)

// maxSize limits Size: there are no larger towers, and the number of pixels grows with its square.
const maxSize = 4096

// Limits of Std: a tower for 16-bit levels has 1/65535, and with 10 all pixels lie within 0.1.
const (
	minStd = 1e-5
	maxStd = 10
)

// Preprocess describes the preprocessing of a tower. It is part of bundle.json.
type Preprocess struct {
	// Size is the side of the square, in pixels.
	Size int `json:"size"`
	// Resize is the filter, Bicubic or Bilinear; both antialias.
	Resize string `json:"resize"`
	// Crop resizes the shorter side to Size and keeps the centre; without Crop and Longest, the whole image is resized
	// to the square.
	Crop bool `json:"crop"`
	// Floor rounds half of the margin of Crop down, as transformers does, and not to even, as torchvision does.
	Floor bool `json:"floor,omitempty"`
	// Longest resizes the longer side to Size and pads with grey of level Fill.
	Longest bool  `json:"longest,omitempty"`
	Fill    uint8 `json:"fill,omitempty"`
	// Mean and Std normalise red, green and blue after scaling to [0,1]: (x-mean)/std.
	Mean rgb `json:"mean"`
	Std  rgb `json:"std"`
}

// rgb holds numbers of red, green and blue.
type rgb [3]float32

// UnmarshalJSON refuses a list of another length, which encoding/json fills up with zeros or cuts.
func (c *rgb) UnmarshalJSON(data []byte) error {
	var list []float32
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}

	if len(list) != len(c) {
		return fmt.Errorf("mean or std has %d numbers, need 3", len(list))
	}

	copy(c[:], list)
	return nil
}

// String describes the preprocessing in one line.
func (p Preprocess) String() string {
	how := "squashed to a square"
	if p.Crop {
		how = "the centre of the shorter side cropped"
		if p.Floor {
			how += " with margins rounded down"
		}
	} else if p.Longest {
		how = fmt.Sprintf("margins of grey level %d", p.Fill)
	}

	return fmt.Sprintf("%d x %d pixels, %s, %s; mean %.4g, standard deviation %.4g", p.Size, p.Size, p.Resize, how,
		p.Mean, p.Std)
}

// CLIP returns the preprocessing of OpenAI's models for a given size (224 for ViT-B).
func CLIP(size int) Preprocess {
	return Preprocess{
		Size: size, Resize: Bicubic, Crop: true,
		Mean: [3]float32{0.48145466, 0.4578275, 0.40821073},
		Std:  [3]float32{0.26862954, 0.26130258, 0.27577711},
	}
}

// SigLIP returns the preprocessing of transformers' SigLIP for images of a given size.
func SigLIP(size int) Preprocess {
	half := rgb{0.5, 0.5, 0.5}
	return Preprocess{Size: size, Resize: Bicubic, Mean: half, Std: half}
}

// Validate returns an error if the description is invalid.
func (p Preprocess) Validate() error {
	if p.Size < 1 || p.Size > maxSize {
		return fmt.Errorf("preprocess: size %d, need 1 to %d", p.Size, maxSize)
	}

	if _, ok := filters[p.Resize]; !ok {
		return fmt.Errorf("preprocess: resize %q, need %s or %s", p.Resize, Bicubic, Bilinear)
	}

	if p.Crop && p.Longest {
		return errors.New("preprocess: the shorter side cannot be cropped where the longer one is fitted")
	}

	for c := range 3 {
		if m, s := p.Mean[c], p.Std[c]; !(m >= -1 && m <= 2 && s >= minStd && s <= maxStd) {
			return fmt.Errorf("preprocess: mean %v must be from -1 to 2 and std %v from %g to %d, as they are of "+
				"pixels from 0 to 1: divide those of levels from 0 to 255 by 255", p.Mean, p.Std, minStd, maxStd)
		}
	}

	return nil
}

// Pixels returns the tower's input, [3,Size,Size] row by row; p must be valid. An image without pixels, which Decode
// never returns, counts as black. Pixels is safe for concurrent use.
func (p Preprocess) Pixels(img image.Image) []float32 { return p.Normalise(p.Levels(img, nil)) }

// Levels returns the levels of red, green and blue of the tower's input, [Size,Size,3]: those of Pixels, or those of
// one random view if rng is not nil: a box of 8 to 100 % of the area and of aspect ratio 3:4 to 4:3, resized to the
// square with the bicubic filter, and mirrored half of the time (torchvision's RandomResizedCrop and
// RandomHorizontalFlip). Equal images and states of rng give equal bytes.
func (p Preprocess) Levels(img image.Image, rng *rand.Rand) []byte {
	src := rasterOf(img)
	if rng != nil {
		return p.augmented(src, rng)
	}

	width, height := p.Size, p.Size
	switch {
	case p.Crop:
		width, height = shorterSide(src.w, src.h, p.Size)
	case p.Longest:
		width, height = longerSide(src.w, src.h, p.Size)
	}

	return p.levels(src, box{0, 0, src.w, src.h}, frame{width: width, height: height, left: p.centre(width),
		top: p.centre(height), size: p.Size, fill: p.Fill}, false)
}

// shorterSide is the rule of torchvision's Resize with one number: the shorter side becomes size, the longer one is
// rounded down.
func shorterSide(width, height, size int) (int, int) {
	long := func(long, short int) int { return int(float64(int64(size)*int64(long)) / float64(short)) }
	switch {
	case width == 0 || height == 0:
		return size, size
	case width <= height:
		return size, long(height, width)
	}

	return long(width, height), size
}

// longerSide is OpenCLIP's rule: the longer side becomes size, the shorter one is rounded to even.
func longerSide(w, h, size int) (int, int) {
	if w == 0 || h == 0 {
		return size, size
	}
	ratio := max(float64(w)/float64(size), float64(h)/float64(size))
	side := func(n int) int { return min(size, max(1, int(math.RoundToEven(float64(n)/ratio)))) }
	return side(w), side(h)
}

// centre returns the start of the centre of a side: half of the margin, rounded as Floor says.
func (p Preprocess) centre(side int) int {
	margin := max(0, side-p.Size)
	if p.Floor {
		return margin / 2
	}
	return int(math.RoundToEven(float64(margin) / 2))
}

var planes = sync.Pool{New: func() any { return new(scratch) }}

// levels resamples the frame f of b, mirrored left to right if flip is set.
func (p Preprocess) levels(src *raster, b box, f frame, flip bool) []byte {
	s := planes.Get().(*scratch)
	defer planes.Put(s)
	out := slices.Clone(s.resample(src, b, f, filters[p.Resize]))
	if flip {
		for line := range slices.Chunk(out, 3*p.Size) {
			for x := range p.Size / 2 {
				left, right := (*[3]byte)(line[3*x:]), (*[3]byte)(line[3*(p.Size-1-x):])
				*left, *right = *right, *left
			}
		}
	}

	return out
}

// Normalise returns levels [Size,Size,3] scaled, normalised and by channel: [3,Size,Size].
func (p Preprocess) Normalise(levels []byte) []float32 {
	var table [3][256]float32
	for c := range 3 {
		for v := range 256 {
			table[c][v] = (float32(v)/255 - p.Mean[c]) / p.Std[c]
		}
	}

	out := make([]float32, len(levels))
	n := len(levels) / 3
	red, green, blue := out[:n], out[n:][:n], out[2*n:]
	for i := range n {
		v := levels[3*i:][:3]
		red[i], green[i], blue[i] = table[0][v[0]], table[1][v[1]], table[2][v[2]]
	}

	return out
}

// Pack returns levels [Size,Size,3] with one number for each pixel, [Size,Size]: red times 65,536, green times 256 and
// blue, added. A float32 holds this sum exactly. Unpack undoes it inside a graph.
func Pack(levels []byte) []float32 {
	out := make([]float32, len(levels)/3)
	for i := range out {
		v := levels[3*i:][:3]
		out[i] = float32(int32(v[0])<<16 | int32(v[1])<<8 | int32(v[2]))
	}
	return out
}
