package optim

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// Schedule describes the learning rate over time, from 0, in the unit of the caller: epochs, rounds or steps. With a
// warm-up of w units the schedule itself starts at unit w, as in CoOp and its descendants.
type Schedule struct {
	Kind       string  `config:"kind" help:"constant, step or cosine; empty: constant"`
	StepSize   int     `config:"step_size" help:"for step: time between two drops, in rounds"`
	Gamma      float64 `config:"gamma" help:"for step: factor of a drop; 0: 0.1, as in PyTorch"`
	TMax       int     `config:"t_max" help:"for cosine: time from the base rate to min_lr, in rounds"`
	MinLR      float64 `config:"min_lr" help:"for cosine: the lowest rate"`
	Warmup     int     `config:"warmup" help:"length of the warm-up in rounds; 0: none"`
	WarmupLR   float64 `config:"warmup_lr" help:"rate during a constant warm-up, or at the start of a linear one"`
	WarmupKind string  `config:"warmup_kind" help:"constant or linear; empty: constant"`
}

// Rate returns the learning rate at a time from 0 on; a negative time counts as 0.
type Rate func(t int) float64

var schedules = map[string]func(s Schedule, base float64) (Rate, error){
	"constant": func(_ Schedule, base float64) (Rate, error) { return func(int) float64 { return base }, nil },
	"step":     stepRate,
	"cosine":   cosineRate,
}

// New returns the schedule that starts at the base learning rate.
func (s Schedule) New(base float64) (Rate, error) {
	build, ok := schedules[cmp.Or(s.Kind, "constant")]
	if !ok {
		return nil, wrong("kind", "optim: unknown schedule %q; known: %s", s.Kind,
			strings.Join(slices.Sorted(maps.Keys(schedules)), ", "))
	}

	// constant keeps WarmupLR (ConstantWarmupScheduler of Dassl, used by CoOp), linear rises from WarmupLR to the base
	// rate, WarmupLR + (base-WarmupLR) t/Warmup (torch's LinearLR)
	if warmups := []string{"", "constant", "linear"}; !slices.Contains(warmups, s.WarmupKind) {
		return nil, wrong("warmup_kind", "optim: unknown warm-up %q; known: %s", s.WarmupKind,
			strings.Join(warmups[1:], ", "))
	}

	for _, f := range []struct {
		key   string
		value float64
	}{{"lr", base}, {"gamma", s.Gamma}, {"min_lr", s.MinLR}, {"warmup", float64(s.Warmup)}, {"warmup_lr", s.WarmupLR}} {
		if !finite(f.value) || f.value < 0 {
			return nil, wrong(f.key, "optim: %s is %v; it must be finite and not negative", f.key, f.value)
		}
	}

	then, err := build(s, base)
	if err != nil {
		return nil, err
	}

	return func(t int) float64 {
		t = max(t, 0)
		switch {
		case t >= s.Warmup:
			return then(t - s.Warmup)
		case s.WarmupKind == "linear":
			return s.WarmupLR + (base-s.WarmupLR)*float64(t)/float64(s.Warmup)
		}
		return s.WarmupLR
	}, nil
}

// checkLength checks a length that a kind of schedule needs. Where no length is given, the kind is to blame.
func checkLength(kind, key string, length int) error {
	blamed := key
	if length == 0 {
		blamed = "kind"
	}

	if length < 1 {
		return wrong(blamed, "optim: schedule %s has %s %d; it must be 1 or more", kind, key, length)
	}

	return nil
}

// stepRate is torch's StepLR: base gamma^floor(t/step_size).
func stepRate(s Schedule, base float64) (Rate, error) {
	if err := checkLength("step", "step_size", s.StepSize); err != nil {
		return nil, err
	}
	gamma := cmp.Or(s.Gamma, .1)
	return func(t int) float64 { return base * math.Pow(gamma, float64(t/s.StepSize)) }, nil
}

// cosineRate is torch's CosineAnnealingLR (Loshchilov and Hutter 2017, Eq. 5): min + (base-min)(1+cos(pi t/t_max))/2;
// like there, it rises again after t_max.
func cosineRate(s Schedule, base float64) (Rate, error) {
	if err := checkLength("cosine", "t_max", s.TMax); err != nil {
		return nil, err
	}
	return func(t int) float64 {
		return s.MinLR + (base-s.MinLR)*(1+math.Cos(math.Pi*float64(t)/float64(s.TMax)))/2
	}, nil
}
