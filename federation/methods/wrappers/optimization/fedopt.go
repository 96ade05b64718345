package optimization

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// FedOpt takes the mean move of the shared parameters, d, for a negative gradient and lets an adaptive optimizer of the
// server make the step: m <- b1 m + (1-b1) d, w <- w + lr m/(√v + tau), where
//
//	adam     v <- b2 v + (1-b2) d²
//	yogi     v <- v - (1-b2) d² sign(v - d²)
//	adagrad  v <- v + d²
//
// or, with kind: momentum, FedAvgM: m <- b1 m + d, w <- w + lr m.
//
// Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2, without bias correction as there. FedAvgM: Hsu
// et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, arXiv
// 1909.06335. Where there is a choice:
//   - v starts at zero, as in the public code (Flower's strategies); the paper asks for τ² at least;
//   - weighting: examples, as the public code has it, or the algorithm's uniform;
//   - server_lr: 0 stands for 1 with momentum and for 0.01 with the others, a step of half a first prompt's standard
//     deviation in every number.
//
// Names: opt/m/NAME and opt/v/NAME, which stay on the server.
type FedOpt struct {
	method.Method
	aggregate.Weighting `config:",squash"`

	Kind     string  `config:"kind" in:"adam|yogi|adagrad|momentum" help:"adam, yogi, adagrad or momentum"`
	ServerLR float64 `config:"server_lr" in:"0.." help:"the server's rate; 0: 1 with momentum, else 0.01"`
	Beta1    float64 `config:"beta1" in:"0..1" help:"b1, decay of the first moment"`
	Beta2    float64 `config:"beta2" in:"0..1" help:"b2, decay of the second moment in adam and yogi"`
	Tau      float64 `config:"tau" in:"1e-12.." help:"constant added to the root of the second moment"`
}

var fedOptDef = layer.Def{Name: "fedopt", Title: "FedOpt, FedAvgM",
	Paper: "Reddi et al., Adaptive Federated Optimization, ICLR 2021; with kind: momentum FedAvgM, Hsu et al., arXiv " +
		"1909.06335",
	Suits:   layer.RequireShared,
	Default: FedOpt{Weighting: aggregate.Examples, Kind: "adam", Beta1: 0.9, Beta2: 0.99, Tau: 0.001}}

// Properties takes the server's step and needs no more than the mean of uploads, with the weights of option weighting.
func (m FedOpt) Properties() method.Properties {
	return method.Properties{Mean: method.Weights(m.Weighting.Weighting),
		Roles: map[method.Role]string{method.ServerStep: ""}}
}

// Names of the moments.
const (
	optM = "opt/m"
	optV = "opt/v"
)

func (m FedOpt) rate() float64 {
	switch {
	case m.ServerLR > 0:
		return m.ServerLR
	case m.Kind == "momentum":
		return 1
	}
	return 0.01
}

// Merge lets the layers inside average, takes the mean's move for d, and makes the optimizer's step from the parameters
// before it. Momentum with beta1: 0 at the rate 1 keeps the mean as it is.
func (m FedOpt) Merge(global *method.Global, ups []method.Upload) error {
	old, err := m.Average(m.Method, global, ups)
	if err != nil || m.Kind == "momentum" && m.Beta1 == 0 && m.rate() == 1 { // the mean itself
		return err
	}

	d := difference(global.Shared, old)
	zerosLike(old, global.State, optM)
	first, step := global.State.WithoutPrefix(optM).Clone().Scale(m.Beta1), tensor.Map{}
	if m.Kind == "momentum" {
		step = first.Axpy(1, d)
	} else {
		first.Axpy(1-m.Beta1, d)
		second := m.second(global.State.WithoutPrefix(optV), d)
		for name, t := range first {
			step[name] = linalg.Elementwise(t, second[name], func(a, v float64) float64 {
				return a / (math.Sqrt(v) +
					m.Tau)
			})
		}
		global.State.Put(optV, second)
	}

	global.State.Put(optM, first)
	global.Shared = old.Axpy(m.rate(), step)
	return nil
}

// second returns the next second moments.
func (m FedOpt) second(old, d tensor.Map) tensor.Map {
	out := tensor.Map{}
	for name, t := range d {
		v := old[name]
		if v == nil {
			v = tensor.New(t.Shape...)
		}

		out[name] = linalg.Elementwise(v, t, func(moment, d float64) float64 {
			switch d *= d; {
			case m.Kind == "adagrad":
				return moment + d
			case m.Kind == "adam":
				return m.Beta2*moment + (1-m.Beta2)*d
			case moment > d:
				return moment - (1-m.Beta2)*d
			case moment < d:
				return moment + (1-m.Beta2)*d
			}
			return moment
		})
	}

	return out
}
