package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Timing is the seconds that repetitions of one thing took.
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

// ratio is how many times longer a takes than b: the median of the ratios of runs of the same turn, or, when a is slow,
// of the same round, because those met the same load of the machine.
func ratio(a, b *contestant) float64 {
	per := len(b.seconds) / len(a.seconds)
	r := make([]float64, len(a.seconds))
	for i, s := range a.seconds {
		r[i] = s / median(b.seconds[i*per:(i+1)*per])
	}
	return median(r)
}

// scaled multiplies all times.
func (t Timing) scaled(by float64) Timing {
	t.Median, t.Min, t.Max = by*t.Median, by*t.Min, by*t.Max
	return t
}

// contestant is one thing to measure.
type contestant struct {
	what    string
	run     func(context.Context) error
	slow    bool // runs once a round instead of perRound times
	seconds []float64
}

func (c *contestant) once(ctx context.Context) (float64, error) {
	begin := time.Now()
	err := c.run(ctx)
	return time.Since(begin).Seconds(), err
}

// warmUps are the runs of everything before its time counts: in the first ONNX Runtime learns what memory a run needs,
// in the second it allocates that as one piece.
const warmUps = 2

// interleave lets all take turns: after warmUps, rounds in which the slow ones run once and the others perRound times,
// A B C A B C, so that whatever else the machine does meets all of them alike.
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
