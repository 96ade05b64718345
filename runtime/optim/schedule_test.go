package optim

import (
	"fmt"
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestSchedules: rates by PyTorch 1.13's schedulers in testdata/schedules.json, written by tools/golden/optim.py.
func TestSchedules(t *testing.T) {
	var cases []struct {
		Config map[string]any
		Base   float64
		Rates  []float64
	}
	readJSON(t, "schedules.json", &cases)
	tested := map[string]bool{}
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Config), func(t *testing.T) {
			var s Schedule
			decode(t, c.Config, &s)
			tested[s.Kind] = true
			rate, err := s.New(c.Base)
			goldentest.NoError(t, err)
			for i, want := range c.Rates {
				if got := rate(i); !(math.Abs(got-want) <= 1e-12*c.Base+1e-9*want) {
					t.Errorf("time %d: rate %v, PyTorch %v", i, got, want)
				}
			}
			if rate(-1) != rate(0) {
				t.Error("a negative time is not the first one")
			}
		})
	}
	for kind := range schedules {
		if !tested[kind] {
			t.Errorf("schedule %s has no golden case", kind)
		}
	}
}

func TestScheduleErrors(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		base float64
		says string
	}{
		{Schedule{Kind: "poly"}, .1, "constant, cosine, step"},
		{Schedule{WarmupKind: "exp"}, .1, "constant, linear"},
		{Schedule{Kind: "step"}, .1, "step_size"},
		{Schedule{Kind: "cosine"}, .1, "t_max"},
		{Schedule{Warmup: -1}, .1, "warmup"},
		{Schedule{WarmupLR: math.NaN()}, .1, "warmup_lr"},
		{Schedule{}, math.Inf(1), "lr"},
	} {
		_, err := c.s.New(c.base)
		goldentest.WantErrorOf(t, fmt.Sprint(c.s), err, c.says)
	}
	if rate, err := (Schedule{Kind: "cosine", TMax: 1}).New(.25); err != nil || rate(0) != .25 || rate(1) != 0 {
		t.Errorf("a cosine of one step: %v", err)
	}
	if rate, err := (Schedule{}).New(.25); err != nil || rate(7) != .25 {
		t.Errorf("the zero schedule is not constant: %v", err)
	}
}
