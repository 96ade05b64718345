package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Timing summarises the seconds of repeated runs.
type Timing struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func (t Timing) String() string {
	return fmt.Sprintf("%.1f (%.1f-%.1f)", 1e3*t.Median, 1e3*t.Min, 1e3*t.Max)
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

// contestant is one of the measured alternatives.
type contestant struct {
	what    string
	run     func(context.Context) error
	own     func() (seconds float64, err error) // a run that measures itself, in place of run
	failed  error                               // it was not measured
	slow    bool                                // runs once per round instead of perRound times
	flops   float64                             // necessary operations of a run; 0 if not counted
	scale   float64                             // factor of the times of a run over a part of the work; 0 means 1
	seconds []float64                           // of the counted runs
}

func (c *contestant) timing() Timing { return summary(c.seconds) }

// rate returns GFLOP/s.
func (c *contestant) rate() float64 { return c.flops / median(c.seconds) / 1e9 }

// ofRate returns the rate of c as a part of another's rate, in percent.
func (c *contestant) ofRate(other *contestant) float64 {
	return 100 * ratio(other, c) * c.flops / other.flops
}

// ratio returns a's time divided by b's time: the median over pairs of runs from the same turn. When one of them is
// slow the pairs come from the same round. Runs of one turn or round meet the same load of the machine.
func ratio(a, b *contestant) float64 {
	r := make([]float64, min(len(a.seconds), len(b.seconds)))
	measured := func(c *contestant, i int) float64 {
		per := len(c.seconds) / len(r)
		return median(c.seconds[i*per : (i+1)*per])
	}

	for i := range r {
		r[i] = measured(a, i) / measured(b, i)
	}

	return median(r)
}

// once returns the seconds of a run.
func (c *contestant) once(ctx context.Context) (float64, error) {
	if c.own != nil {
		return c.own()
	}
	began := time.Now()
	err := c.run(ctx)
	return time.Since(began).Seconds(), err
}

// warmUps is the number of runs before times count. In the first run ONNX Runtime learns the memory needs, and in the
// second it allocates the memory as one piece.
const warmUps = 2

// interleave runs all contestants in turns. After warmUps come rounds in which slow contestants run once and others
// perRound times, in the order A B C A B C. Other load on the machine therefore affects all contestants equally. With
// Quick a contestant whose warm-up takes more than a second is slow.
func (o Options) interleave(ctx context.Context, label string, rounds, perRound int, all ...*contestant) error {
	total := rounds + warmUps
	for round := range total {
		o.Progress(label, round, total)
		counted := round >= warmUps
		for turn := range perRound {
			for _, contestant := range all {
				if turn > 0 && (contestant.slow || !counted) {
					continue
				}
				seconds, err := contestant.once(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", contestant.what, err)
				}
				if counted {
					contestant.seconds = append(contestant.seconds, max(1, contestant.scale)*seconds)
				} else {
					contestant.slow = contestant.slow || o.Quick && seconds > 1
				}
			}
		}
	}

	o.Progress(label, total, total)
	return nil
}

// bursts runs contestants that are warm, in turns of several runs. The first run of a turn does not count, since a
// device changes to another process. A contestant that fails does not run again.
func (o Options) bursts(ctx context.Context, label string, rounds, runs int, all ...*contestant) error {
	for round := range rounds {
		o.Progress(label, round, rounds)
		for _, c := range all {
			for i := 0; i <= runs && c.failed == nil; i++ {
				var seconds float64
				if seconds, c.failed = c.once(ctx); c.failed == nil && i > 0 {
					c.seconds = append(c.seconds, seconds)
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}

	o.Progress(label, rounds, rounds)
	return nil
}

// steps interleaves training steps. The number of rounds is the same with Quick, so that the plain form is equally
// warm. Each round has so many runs that its median is not the run right after the plain form, which meets the plain
// form's memory.
func (o Options) steps(ctx context.Context, label string, all ...*contestant) error {
	if o.Quick {
		return o.interleave(ctx, label, 3, 3, all...)
	}
	return o.interleave(ctx, label, 3, 7, all...)
}

// opened is what a measurement opened, and the first error. After an error the other opened values must not be used.
type opened struct {
	list []func() error
	err  error
}

func (o *opened) add(what func() error, err error) {
	o.err = errors.Join(o.err, err)
	if err == nil {
		o.list = append(o.list, what)
	}
}

func (o *opened) step(s *step, err error) *step {
	o.add(s.close, err)
	return s
}

func (o *opened) products(p *products, err error) *products {
	o.add(p.close, err)
	return p
}

// close closes everything, the last first, and adds errors to err.
func (o *opened) close(err *error) {
	for _, f := range slices.Backward(o.list) {
		*err = errors.Join(*err, f())
	}
}

// parallel returns a run of several runs, at most limit of them side by side.
func parallel(runs, limit int, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx)
		all.SetLimit(limit)
		for range runs {
			all.Go(func() error { return run(ctx) })
		}
		return all.Wait()
	}
}
