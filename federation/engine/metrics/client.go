package metrics

import (
	"math"

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

// meanOver is the Value of a mean over clients.
func meanOver(value func(c Client) float64) func([]Client) (float64, bool) {
	return func(clients []Client) (float64, bool) {
		mean, _ := MeanStd(each(clients, value))
		return mean, true
	}
}

// sumOver adds a statistic of one number over clients, and their examples.
func sumOver(clients []Client, s *Statistic) (sum float64, examples int) {
	for _, c := range clients {
		sum, examples = sum+c.Statistics[s.Name][0], examples+c.Examples
	}
	return sum, examples
}

// each is a number of every client.
func each(clients []Client, value func(c Client) float64) []float64 {
	return convert.Slice(clients, value)
}

// Above reports whether a is larger than b by more than the rounding of a mean.
func Above(a, b float64) bool { return a-b > 1e-12 }

// MeanStd is the mean and the population standard deviation.
func MeanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}
