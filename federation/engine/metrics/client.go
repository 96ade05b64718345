package metrics

import (
	"maps"
	"math"
	"slices"

	"promptfed/runtime/convert"
)

// Client holds the results of one client in one evaluation.
type Client struct {
	Domain   string
	Examples int
	Statistics
}

func (c Client) has(list []*Statistic) bool {
	for _, s := range list {
		if c.Statistics[s.Name] == nil {
			return false
		}
	}
	return true
}

// rate is a count over the client's examples; 0 without examples.
func (c Client) rate(s *Statistic) float64 {
	return c.Statistics[s.Name][0] / float64(max(1, c.Examples))
}

// over is the Value of a statistic, such as the mean, of a number of every client.
func over(value func(c Client) float64, statistic func([]float64) float64) func([]Client) (float64, bool) {
	return func(clients []Client) (float64, bool) { return statistic(each(clients, value)), true }
}

// overDomain is the Value of a statistic of the domains' means; there is none without domains.
func overDomain(statistic func([]float64) float64) func([]Client) (float64, bool) {
	return func(clients []Client) (float64, bool) {
		per := perDomain(clients)
		means := convert.Slice(slices.Sorted(maps.Keys(per)), func(d string) float64 { return per[d] })
		return statistic(means), len(means) > 0
	}
}

// perExample is the Value of a statistic of one number, over the examples of all clients.
func perExample(s *Statistic) func([]Client) (float64, bool) {
	return func(clients []Client) (float64, bool) {
		sum, examples := 0.0, 0
		for _, c := range clients {
			sum, examples = sum+c.Statistics[s.Name][0], examples+c.Examples
		}
		return sum / float64(max(1, examples)), true
	}
}

// each is a number of every client.
func each(clients []Client, value func(c Client) float64) []float64 {
	return convert.Slice(clients, value)
}

// Above reports whether a is larger than b by more than the rounding of a mean.
func Above(a, b float64) bool { return a-b > 1e-12 }

// Mean is the mean of numbers.
func Mean(v []float64) (mean float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	return mean
}

// Deviation is the population standard deviation.
func Deviation(v []float64) float64 {
	mean, square := Mean(v), 0.0
	for _, x := range v {
		square += (x - mean) * (x - mean) / float64(len(v))
	}
	return math.Sqrt(square)
}
