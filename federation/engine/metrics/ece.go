package metrics

import (
	"fmt"
	"math"
	"slices"
)

// ECE is the name of the expected calibration error with 15 bins, pooled over the test examples of all clients.
const ECE = "ece"

// bins is the number of bins of the expected calibration error, as in Guo et al. (On Calibration of Modern Neural
// Networks, ICML 2017, section 2). Bin m of equal width over (0,1] reaches from (m-1)/bins, exclusive, to m/bins.
const bins = 15

// confidences is a reliability diagram: for each bin the number of examples whose confidence lies in it, how many of
// them are correct, and the sum of their confidences. The confidence of an example is the softmax probability of the
// predicted class.
var confidences = &Statistic{Name: "confidence_bins", Title: "confidence bins", Size: 3 * bins,
	Compute: func(e Examples) []float64 {
		out := make([]float64, 3*bins)
		for i, y := range e.Labels {
			row, best, sum := e.Scores.Row(i).Data, e.predicted[i], 0.0
			for _, v := range row {
				sum += math.Exp(float64(v) - float64(row[best]))
			}
			confidence := 1 / sum
			b := out[3*(min(bins, max(1, int(math.Ceil(confidence*bins))))-1):]
			b[0]++
			b[2] += confidence
			if best == y {
				b[1]++
			}
		}
		return out
	},
	Check: func(v []float64, test ReportedTest) error {
		examples, right := float64(test.Examples), test.Statistics[correct.Name][0]
		for m, b := range slices.Collect(slices.Chunk(v, 3)) {
			low, high := b[0]*float64(m)/bins, b[0]*float64(m+1)/bins
			if whole(test.Examples, b[:2]...) != nil || b[1] > b[0] || !(b[2] >= low-1e-6 && b[2] <= high+1e-6) {
				return fmt.Errorf("bin %d has %v examples, %v correct ones and the sum of confidences %v", m, b[0],
					b[1], b[2])
			}
			examples, right = examples-b[0], right-b[1]
		}
		if examples != 0 || right != 0 {
			return fmt.Errorf("the bins lack %v examples and %v correct ones", examples, right)
		}
		return nil
	}}

// The error is the mean over examples of |accuracy - mean confidence| of their bin (Guo et al., eq. 3).
var eceMetric = Definition{Name: ECE, Title: "expected calibration error", Unit: Percent, Lower: true,
	Statistics: []*Statistic{confidences}, Merge: pooled + ", bin by bin",
	Value: func(clients []Client) (float64, bool) {
		all, gap, n := make([]float64, 3*bins), 0.0, 0.0
		for _, c := range clients {
			for i, v := range c.Statistics[confidences.Name] {
				all[i] += v
			}
		}
		for b := range slices.Chunk(all, 3) {
			gap, n = gap+math.Abs(b[1]-b[2]), n+b[0]
		}
		return gap / max(1, n), true
	}}
