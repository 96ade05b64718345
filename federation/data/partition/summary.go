package partition

import (
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/data"
)

// Range is the minimum, median and maximum of a number over clients; for an even number of clients, the median is the
// mean of the middle two.
type Range struct {
	Min    int     `json:"min"`
	Median float64 `json:"median"`
	Max    int     `json:"max"`
}

func (r Range) String() string {
	return fmt.Sprintf("%d/%s/%d", r.Min, strconv.FormatFloat(r.Median, 'f', -1, 64), r.Max)
}

// Summary describes a partition in a few numbers.
type Summary struct {
	Clients int   `json:"clients"`
	Train   Range `json:"train"` // examples of a client
	Val     Range `json:"val"`
	Test    Range `json:"test"`
	Classes Range `json:"classes"` // that a client trains on
	// Skew is the mean over clients of the total variation distance, from 0 to 1, between the label distribution of the
	// client's training examples and that of all clients together. It is 0 if all clients have the same distribution.
	Skew float64 `json:"skew"`
	// Gini is the Gini coefficient of the clients' training sizes: 0 for equal sizes, near 1 if one client has almost
	// all.
	Gini float64 `json:"gini"`
	// Unused counts examples that are in no client's lists; Repeated counts, for examples that are in several lists,
	// the lists beyond the first.
	Unused   int `json:"unused"`
	Repeated int `json:"repeated"`
}

// Summarise computes the summary of a partition of s.
func Summarise(set *data.Set, clients []Client) Summary {
	out := Summary{Clients: len(clients)}
	if len(clients) == 0 {
		return out
	}

	var train, val, test, classes []int
	var counts [][]int
	all := make([]int, len(set.Classes))
	for _, c := range clients {
		mine, _, _ := c.Of(set)
		own, held := set.Counts(mine), 0
		for k, n := range own {
			all[k] += n
			held += min(n, 1)
		}
		train, val, test = append(train, len(c.Train)), append(val, len(c.Val)), append(test, len(c.Test))
		counts, classes = append(counts, own), append(classes, held)
	}

	out.Train, out.Val, out.Test, out.Classes = rangeOf(train), rangeOf(val), rangeOf(test), rangeOf(classes)
	out.Skew, out.Gini = skew(counts, all), gini(train)
	out.Unused, out.Repeated = countUses(set, clients)
	return out
}

func rangeOf(n []int) Range {
	n = slices.Sorted(slices.Values(n))
	return Range{n[0], float64(n[(len(n)-1)/2]+n[len(n)/2]) / 2, n[len(n)-1]}
}

func skew(counts [][]int, all []int) float64 {
	whole, sum := total(all), 0.0
	for _, own := range counts {
		size := total(own)
		if size == 0 {
			continue
		}
		for k, n := range own {
			sum += max(0, float64(n)/float64(size)-float64(all[k])/float64(whole))
		}
	}

	return sum / float64(len(counts))
}

func gini(sizes []int) float64 {
	sizes = slices.Sorted(slices.Values(sizes))
	sum, ranked := 0.0, 0.0
	for i, n := range sizes {
		sum += float64(n)
		ranked += float64(i+1) * float64(n)
	}

	if sum == 0 {
		return 0
	}

	n := float64(len(sizes))
	return 2*ranked/(n*sum) - (n+1)/n
}

// countUses counts examples in no client's lists, and additional occurrences of those in several. A training example
// that CutValidation moved to validation counts as validation.
func countUses(s *data.Set, clients []Client) (unused, repeated int) {
	val := map[string]bool{}
	for _, e := range s.Val {
		val[e.ID] = true
	}

	for _, sp := range s.Splits() {
		times := make([]int, len(*sp.Examples))
		for _, c := range clients {
			used := *c.In(sp.Name)
			if s.Pool != nil {
				used = slices.Concat(c.Train, c.Val, c.Test)
			}
			for _, i := range used {
				times[i]++
			}
		}

		for i, n := range times {
			switch {
			case n > 0:
				repeated += n - 1
			case sp.Name != "train" || !val[(*sp.Examples)[i].ID]:
				unused++
			}
		}
	}

	return unused, repeated
}

// footer returns the summary in two lines.
func (s Summary) footer() string {
	return fmt.Sprintf("%d clients; min/median/max: train %v, val %v, test %v, classes %v\nlabel skew %.2f (0 even, "+
		"1 disjoint), Gini of sizes %.2f, %d examples unused, %d repeated\n",
		s.Clients, s.Train, s.Val, s.Test, s.Classes, s.Skew, s.Gini, s.Unused, s.Repeated)
}
