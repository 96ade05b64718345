package metrics

import (
	"maps"
	"slices"
)

// Kappa is the name of Cohen's kappa, from -1 to 1. It exists where clients send their confusion matrices.
const Kappa = "kappa"

// Cohen's kappa (Cohen, A Coefficient of Agreement for Nominal Scales, Educational and Psychological Measurement 20,
// 1960) is (p_o - p_e) / (1 - p_e): p_o is the share of correct examples, and p_e the sum over classes of the share of
// labels times the share of predictions. Shares are over the examples of all clients. The counts of labels and
// predictions that it needs reveal a client's labels, as the confusion matrix does, whose sums of rows and columns
// they are; so kappa needs no other statistic, and exists where clients send that one. It has no value where all
// examples are of one class and predicted as that class.
var kappaMetric = Definition{Name: Kappa, Title: "Cohen's kappa", Low: -1, High: 1, Exists: result,
	Statistics: []*Statistic{confusion}, Merge: pooled + ", from their confusion matrices",
	Value: func(clients []Client) (float64, bool) {
		var n, agree, chance float64
		labels, predictions := map[float64]float64{}, map[float64]float64{}
		for _, c := range clients {
			for k := range slices.Chunk(c.Statistics[confusion.Name], 3) {
				n, labels[k[0]], predictions[k[1]] = n+k[2], labels[k[0]]+k[2], predictions[k[1]]+k[2]
				if k[0] == k[1] {
					agree += k[2]
				}
			}
		}
		for _, class := range slices.Sorted(maps.Keys(labels)) {
			chance += labels[class] * predictions[class]
		}
		if n == 0 || chance == n*n {
			return 0, false
		}
		return (agree*n - chance) / (n*n - chance), true
	}}
