package optim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

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
			return fmt.Errorf("%s is %v; it must lie in [0, %v)", f.key, f.value, f.below)
		}
	}
	if !finite(c.Dampening) {
		return fmt.Errorf("dampening is %v; it must be finite", c.Dampening)
	}
	return nil
}

// sgd is torch.optim.SGD.
func sgd(c Config) ([]Transform, error) {
	if c.Beta1 != 0 || c.Beta2 != 0 || c.Eps != 0 {
		return nil, errors.New("beta1, beta2 and eps belong to adam and adamw; remove them")
	}
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		return nil, errors.New("nesterov needs a momentum above 0 and dampening 0")
	}
	var parts []Transform
	if c.WeightDecay != 0 {
		parts = append(parts, AddDecayedWeights(c.WeightDecay))
	}
	if c.Momentum != 0 {
		parts = append(parts, Momentum(c.Momentum, c.Dampening, c.Nesterov))
	}
	return parts, nil
}

// adam is torch.optim.Adam or, with weight decay decoupled, torch.optim.AdamW.
func adam(decoupled bool) func(Config) ([]Transform, error) {
	return func(c Config) ([]Transform, error) {
		if c.Momentum != 0 || c.Dampening != 0 || c.Nesterov {
			return nil, errors.New("momentum, dampening and nesterov belong to sgd; remove them")
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
