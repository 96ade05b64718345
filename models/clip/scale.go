package clip

import (
	"fmt"
	"math"
)

// Limits of the factor of similarities and of the bias that is added to them. Both follow from float32, in which a
// cosine of some 1000 products has an error of about 2^-20. Above the largest scale, this error is a whole unit of a
// logit, a factor e of a probability. Below the smallest scale, all exponentials of a softmax equal 1 within this
// error, so all classes have the same probability. A larger bias rounds logits to steps of more than 1/16. Trained
// models have scales from 1 to some 120 (CLIP stops at 100) and biases down to -17 (SigLIP).
const (
	MaxScale = 1 << 20
	MinScale = 1.0 / MaxScale
)

// CheckScale returns an error if similarities scale x cosine + bias lose their precision.
func CheckScale(scale, bias float64) error {
	if !(scale >= MinScale && scale <= MaxScale) {
		return fmt.Errorf("logit_scale %.6g must be a number from %.2g to %d: beyond, float32 cannot distinguish "+
			"classes", scale, MinScale, MaxScale)
	}
	if !(math.Abs(bias) <= MaxScale) {
		return fmt.Errorf("logit_bias %.6g must be a number from %d to %d: beyond, float32 cannot distinguish classes",
			bias, -MaxScale, MaxScale)
	}
	return nil
}
