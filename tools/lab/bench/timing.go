package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Timing summarises the seconds of repeated runs.
type Timing struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func summary(seconds []float64) Timing {
	if len(seconds) == 0 {
		return Timing{}
	}
	return Timing{Median: median(seconds), Min: slices.Min(seconds), Max: slices.Max(seconds), Runs: len(seconds)}
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// ratio returns a's time divided by b's time: the median over pairs of runs from the same turn. When a is slow the
// pairs come from the same round. Runs of one turn or round meet the same load of the machine.
func ratio(a, b *contestant) float64 {
	per := len(b.seconds) / len(a.seconds)
	r := make([]float64, len(a.seconds))
	for i, s := range a.seconds {
		r[i] = s / median(b.seconds[i*per:(i+1)*per])
	}
	return median(r)
}

// scaled returns t with all times multiplied.
func (t Timing) scaled(by float64) Timing {
	t.Median, t.Min, t.Max = by*t.Median, by*t.Min, by*t.Max
	return t
}

// contestant is one of the measured alternatives.
type contestant struct {
	what    string
	run     func(context.Context) error
	slow    bool // runs once per round instead of perRound times
	seconds []float64
}

func (c *contestant) once(ctx context.Context) (float64, error) {
	begin := time.Now()
	err := c.run(ctx)
	return time.Since(begin).Seconds(), err
}

// warmUps is the number of runs before times count. In the first run ONNX Runtime learns the memory needs, and in the
// second it allocates the memory as one piece.
const warmUps = 2

// interleave runs all contestants in turns. After warmUps come rounds in which slow contestants run once and others
// perRound times, in the order A B C A B C. Other load on the machine therefore affects all contestants equally.
func interleave(ctx context.Context, label string, progress func(string, int, int), rounds, perRound int,
	all ...*contestant) error {
	total, done := rounds+warmUps, 0
	for round := -warmUps; round < rounds; round++ {
		progress(label, done, total)
		for turn := range perRound {
			for _, c := range all {
				if turn > 0 && (c.slow || round < 0) {
					continue
				}
				s, err := c.once(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", c.what, err)
				}
				if round >= 0 {
					c.seconds = append(c.seconds, s)
				}
			}
		}
		done++
	}
	progress(label, done, total)
	return nil
}
