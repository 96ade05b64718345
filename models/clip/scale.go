package clip

import (
	"fmt"
	"math"
)

// Limits of what similarities are multiplied with, and of what is added to that. Both come from float32, in which a
// cosine of some 1000 products is right to about 2^-20. Above the largest scale that error is a whole unit of a logit,
// a factor e of a probability. Below the smallest scale all exponentials of a softmax are 1 to within that error, so
// that all classes have one probability. A larger bias rounds logits to steps of more than 1/16. Trained models have
// scales from 1 to some 120 (CLIP stops at 100) and biases down to -17 (SigLIP).
const (
	MaxScale = 1 << 20
	MinScale = 1.0 / MaxScale
)

// CheckScale tells why similarities scale x cosine + bias cannot work, if they cannot.
func CheckScale(scale, bias float64) error {
	if !(scale >= MinScale && scale <= MaxScale) {
		return fmt.Errorf("logit_scale %.6g must be a number from %.2g to %d: beyond, float32 tells no classes apart",
			scale, MinScale, MaxScale)
	}
	if !(math.Abs(bias) <= MaxScale) {
		return fmt.Errorf("logit_bias %.6g must be a number from %d to %d: beyond, float32 tells no classes apart",
			bias, -MaxScale, MaxScale)
	}
	return nil
}
