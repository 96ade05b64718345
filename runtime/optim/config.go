package optim

import (
	"cmp"
	"fmt"
	"math"
)

// SettingError is an error about one setting of a Config or a Schedule.
type SettingError struct {
	Key string // of the setting in a configuration
	Err error
}

func (e *SettingError) Error() string { return e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

func wrong(key, format string, a ...any) error { return &SettingError{key, fmt.Errorf(format, a...)} }

func (c Config) check() error {
	for _, f := range []struct {
		key   string
		value float64
		below float64
	}{
		{"lr", c.LR, math.Inf(1)}, {"momentum", c.Momentum, math.Inf(1)}, {"weight_decay", c.WeightDecay, math.Inf(1)},
		{"beta1", c.Beta1, 1}, {"beta2", c.Beta2, 1}, {"eps", c.Eps, math.Inf(1)},
		{"clip_norm", c.ClipNorm, math.Inf(1)}, {"clip_value", c.ClipValue, math.Inf(1)},
	} {
		if !(f.value >= 0 && f.value < f.below) {
			return wrong(f.key, "%s is %v; it must lie in [0, %v)", f.key, f.value, f.below)
		}
	}

	if !finite(c.Dampening) {
		return wrong("dampening", "dampening is %v; it must be finite", c.Dampening)
	}

	return nil
}

// sgd is torch.optim.SGD.
func sgd(config Config) ([]Transform, error) {
	for i, value := range []float64{config.Beta1, config.Beta2, config.Eps} {
		if value != 0 {
			key := []string{"beta1", "beta2", "eps"}[i]
			return nil, wrong(key, "beta1, beta2 and eps belong to adam and adamw; remove them")
		}
	}

	if config.Nesterov && (config.Momentum == 0 || config.Dampening != 0) {
		return nil, wrong("nesterov", "nesterov needs a momentum above 0 and dampening 0")
	}

	var parts []Transform
	if config.WeightDecay != 0 {
		parts = append(parts, AddDecayedWeights(config.WeightDecay))
	}

	if config.Momentum != 0 {
		parts = append(parts, Momentum(config.Momentum, config.Dampening, config.Nesterov))
	}

	return parts, nil
}

// adam is torch.optim.Adam or, with weight decay decoupled, torch.optim.AdamW.
func adam(decoupled bool) func(Config) ([]Transform, error) {
	return func(c Config) ([]Transform, error) {
		if c.Momentum != 0 || c.Dampening != 0 || c.Nesterov {
			return nil, wrong("optimizer", "momentum, dampening and nesterov belong to sgd; set momentum and "+
				"dampening to 0 and nesterov to false")
		}
		step := ScaleByAdam(cmp.Or(c.Beta1, .9), cmp.Or(c.Beta2, .999), cmp.Or(c.Eps, 1e-8))
		switch decay := AddDecayedWeights(c.WeightDecay); {
		case c.WeightDecay == 0:
			return []Transform{step}, nil
		case decoupled:
			return []Transform{step, decay}, nil
		default:
			return []Transform{decay, step}, nil
		}
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
