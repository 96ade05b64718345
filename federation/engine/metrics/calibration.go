package metrics

import (
	"fmt"
	"math"

	"promptfed/runtime/tensor"
)

// CalibrationBins is the number of bins of the expected calibration error, as in Guo et al. (On Calibration of Modern
// Neural Networks, ICML 2017, section 2).
const CalibrationBins = 15

// Bin is the examples whose confidence lies in one bin.
type Bin struct {
	Examples   int     `json:"n"`
	Correct    int     `json:"right"`
	Confidence float64 `json:"confidence"` // sum over the examples
}

// Calibration is a reliability diagram: CalibrationBins bins of equal width over (0,1], the m-th from (m-1)/M,
// exclusive, to m/M. The confidence of an example is the softmax probability of the predicted class. Calibrations of
// several clients add up bin by bin.
type Calibration []Bin

// calibration sorts the examples of class scores [N,C] into bins.
func calibration(scores *tensor.Tensor, labels []int64) Calibration {
	out := make(Calibration, CalibrationBins)
	for i, y := range labels {
		row := scores.Row(i).Data
		best, sum := Argmax(row), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - float64(row[best]))
		}
		confidence := 1 / sum
		b := &out[min(CalibrationBins, max(1, int(math.Ceil(confidence*CalibrationBins))))-1]
		b.Examples++
		b.Confidence += confidence
		if best == y {
			b.Correct++
		}
	}
	return out
}

// Add adds the bins of another calibration, which may be empty.
func (c Calibration) Add(other Calibration) Calibration {
	if len(c) == 0 {
		c = make(Calibration, len(other))
	}
	for i, b := range other {
		c[i].Examples, c[i].Correct, c[i].Confidence = c[i].Examples+b.Examples, c[i].Correct+b.Correct,
			c[i].Confidence+b.Confidence
	}
	return c
}

// ECE is the expected calibration error (Guo et al., eq. 3): the mean over examples of |accuracy - mean confidence| of
// their bin.
func (c Calibration) ECE() float64 {
	gap, n := 0.0, 0
	for _, b := range c {
		gap += math.Abs(float64(b.Correct) - b.Confidence)
		n += b.Examples
	}
	return gap / float64(max(1, n))
}

// Check refuses bins that do not match n examples of which so many are correct.
func (c Calibration) Check(n, right int) error {
	if len(c) != CalibrationBins {
		return fmt.Errorf("the reply has %d confidence bins; it must have %d", len(c), CalibrationBins)
	}
	for m, b := range c {
		low, high := float64(b.Examples)*float64(m)/CalibrationBins, float64(b.Examples)*float64(m+1)/CalibrationBins
		if b.Examples < 0 || b.Correct < 0 || b.Correct > b.Examples || !(b.Confidence >= low-1e-6 &&
			b.Confidence <= high+1e-6) {
			return fmt.Errorf("confidence bin %d is invalid: %d examples, %d correct, sum of confidences %v", m,
				b.Examples, b.Correct, b.Confidence)
		}
		n, right = n-b.Examples, right-b.Correct
	}
	if n != 0 || right != 0 {
		return fmt.Errorf("the confidence bins lack %d examples and %d correct ones", n, right)
	}
	return nil
}
