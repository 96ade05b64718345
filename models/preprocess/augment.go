package preprocess

import (
	"math"
	"math/rand/v2"
)

// Bounds of torchvision's RandomResizedCrop: the share of the image's area, and the aspect ratio width over height.
const (
	minScale, maxScale = 0.08, 1
	minRatio, maxRatio = 3.0 / 4, 4.0 / 3
)

// cropTries is the number of random boxes that are tried before the central one is used.
const cropTries = 10

func (p Preprocess) augmented(src *raster, rng *rand.Rand) []byte {
	b := randomBox(src.w, src.h, rng.Float64)
	flip := rng.Float64() < 0.5
	p.Resize = Bicubic
	return p.levels(src, b, p.whole(), flip)
}

// whole returns the frame of a box that fills the model's input.
func (p Preprocess) whole() frame { return frame{width: p.Size, height: p.Size, size: p.Size} }

// randomBox draws area and aspect ratio (log-uniform) up to cropTries times; if no box fits, it returns the largest
// central one with an allowed aspect ratio.
func randomBox(width, height int, uniform func() float64) box {
	low, high := math.Log(minRatio), math.Log(maxRatio)
	for range cropTries {
		area := float64(width) * float64(height) * (minScale + float64((maxScale-minScale)*uniform()))
		aspect := math.Exp(low + float64((high-low)*uniform()))
		bw := int(math.RoundToEven(math.Sqrt(area * aspect)))
		bh := int(math.RoundToEven(math.Sqrt(area / aspect)))
		if bw > 0 && bw <= width && bh > 0 && bh <= height {
			top := int(uniform() * float64(height-bh+1))
			left := int(uniform() * float64(width-bw+1))
			return box{left, top, bw, bh}
		}
	}

	bw, bh := width, height
	switch {
	case float64(width) < minRatio*float64(height):
		bh = int(math.RoundToEven(float64(width) / minRatio))
	case float64(width) > maxRatio*float64(height):
		bw = int(math.RoundToEven(float64(height) * maxRatio))
	}

	return box{(width - bw) / 2, (height - bh) / 2, bw, bh}
}
