package metrics

import (
	"fmt"
	"math"
)

// Brier is the name of the Brier score: the mean over test examples of the squared errors of the class probabilities,
// from 0 to 2.
const Brier = "brier"

// squares is the sum over examples of sum_k (p_k - y_k)^2, where p is the softmax of the class scores, and y is 1 for
// the label and 0 for other classes (Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly
// Weather Review 78, 1950, eq. 2).
var squares = &Statistic{Name: "brier", Title: "sum of squared errors of class probabilities", Size: 1,
	Compute: func(e Examples) []float64 {
		sum := 0.0
		for i, y := range e.Labels {
			row := e.Scores.Row(i).Data
			top, all := float64(row[e.predicted[i]]), 0.0
			for _, v := range row {
				all += math.Exp(float64(v) - top)
			}
			for k, v := range row {
				p := math.Exp(float64(v)-top) / all
				if int64(k) == y {
					p--
				}
				sum += p * p
			}
		}
		return []float64{sum}
	},
	// A correct example has at most 1, since no other class has a higher probability than its label. Another one has
	// 1/2 to 2.
	Check: func(v []float64, test ReportedTest) error {
		right := test.Statistics[correct.Name][0]
		wrong := float64(test.Examples) - right
		if low, high := wrong/2, right+2*wrong; !(v[0] >= low-1e-6 && v[0] <= high+1e-6) {
			return fmt.Errorf("%v is not between %v and %v, with %v correct ones", v[0], low, high, right)
		}
		return nil
	}}

var brierMetric = Definition{Name: Brier, Title: "Brier score", Lower: true, High: 2,
	Statistics: []*Statistic{squares}, Merge: pooled, Value: perExample(squares)}
