package optim

import (
	"fmt"
	"math"
	"slices"

	"promptfed/runtime/tensor"
)

// Transform is one stage of an optimizer.
type Transform struct {
	// Name is the first part of the names of its state.
	Name string
	// Init returns new state for the parameters, named SLOT/PARAMETER; Init is nil for a transform without state. The
	// optimizer sets its floats to 0 before the first step of a parameter. An integer of it counts the steps of a
	// parameter, with the one under way; the optimizer increments it.
	Init func(params tensor.Map) tensor.Map
	// Update changes updates and state in place. params has at least the names of updates. Unless joint is set, the
	// tensors may hold a part of the elements of their shape, the same part in all.
	Update func(updates, state, params tensor.Map)
	joint  bool // an element of an update depends on others
}

// Chain applies transforms one after another. Names of state start with the transform's name, or NAME.2 and so on for a
// repeated name.
func Chain(parts ...Transform) Transform {
	prefix := make([]string, len(parts))
	seen := map[string]int{}
	for i, p := range parts {
		prefix[i] = p.Name
		if seen[p.Name]++; seen[p.Name] > 1 {
			prefix[i] = fmt.Sprintf("%s.%d", p.Name, seen[p.Name])
		}
	}

	return Transform{
		Name:  "chain",
		joint: slices.ContainsFunc(parts, func(p Transform) bool { return p.joint }),
		Init: func(params tensor.Map) tensor.Map {
			state := tensor.Map{}
			for i, p := range parts {
				if p.Init != nil {
					state.Put(prefix[i], p.Init(params))
				}
			}
			return state
		},
		Update: func(updates, state, params tensor.Map) {
			for i, p := range parts {
				p.Update(updates, state.WithoutPrefix(prefix[i]), params)
			}
		},
	}
}

// AddDecayedWeights adds decay times the parameter to the update. Before a momentum it is L2 regularisation (SGD,
// Adam), after it decoupled weight decay (AdamW, Loshchilov and Hutter 2019).
func AddDecayedWeights(decay float64) Transform {
	return Transform{Name: "decay", Update: func(updates, _, params tensor.Map) {
		for name, u := range updates {
			u.Axpy(decay, params[name])
		}
	}}
}

// ClipByValue limits every element to [-limit, limit], as torch.nn.utils.clip_grad_value_, except infinities, which an
// optimizer refuses.
func ClipByValue(limit float64) Transform {
	return Transform{Name: "clip_value", Update: func(updates, _, _ tensor.Map) {
		for _, u := range updates {
			for i, x := range u.Data {
				if x-x == 0 {
					u.Data[i] = float32(max(-limit, min(limit, float64(x))))
				}
			}
		}
	}}
}

// ClipByGlobalNorm scales all updates by min(1, limit/(norm+1e-6)), where norm is their joint Euclidean norm, as
// torch.nn.utils.clip_grad_norm_.
func ClipByGlobalNorm(limit float64) Transform {
	return Transform{Name: "clip_norm", joint: true, Update: func(updates, _, _ tensor.Map) {
		updates.Scale(min(1, limit/(updates.Norm()+1e-6)))
	}}
}

// Momentum applies the momentum of torch.optim.SGD: b = update in the first step of a parameter and b = momentum b +
// (1-dampening) update in later ones; the update becomes b or, with Nesterov, update + momentum b.
func Momentum(momentum, dampening float64, nesterov bool) Transform {
	return Transform{
		Name: "momentum",
		Init: func(params tensor.Map) tensor.Map { return slots(params, "b") },
		Update: func(updates, state, params tensor.Map) {
			for name, update := range updates {
				b := state["b/"+name]
				keep, take := momentum, 1-dampening
				if state["step/"+name].Ints[0] == 1 {
					keep, take = 0, 1
				}

				if !nesterov {
					b.Blend(keep, take, update)
					copy(update.Data, b.Data)
					continue
				}

				for i, x := range update.Data {
					m := keep*float64(b.Data[i]) + take*float64(x)
					b.Data[i], update.Data[i] = float32(m), float32(float64(x)+momentum*m)
				}
			}
		},
	}
}

// ScaleByAdam applies the step of Adam (Kingma and Ba 2015) as in torch.optim.Adam: m and v are running means of u and
// u^2, and the update becomes m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps), where t counts the steps of each parameter.
func ScaleByAdam(beta1, beta2, eps float64) Transform {
	return Transform{
		Name: "adam",
		Init: func(params tensor.Map) tensor.Map { return slots(params, "m", "v") },
		Update: func(updates, state, params tensor.Map) {
			for name, u := range updates {
				m, v, t := state["m/"+name], state["v/"+name], float64(state["step/"+name].Ints[0])
				c1, c2 := 1-math.Pow(beta1, t), 1-math.Pow(beta2, t)
				for i, x := range u.Data {
					g := float64(x)
					mi := beta1*float64(m.Data[i]) + (1-beta1)*g
					vi := beta2*float64(v.Data[i]) + (1-beta2)*g*g
					m.Data[i], v.Data[i] = float32(mi), float32(vi)
					u.Data[i] = float32(mi / c1 / (math.Sqrt(vi/c2) + eps))
				}
			}
		},
	}
}

// slots returns a tensor per slot and parameter, of unknown values, and a step count of shape [1] per parameter.
func slots(params tensor.Map, names ...string) tensor.Map {
	s := tensor.Map{}
	for p, t := range params {
		for _, n := range names {
			s[n+"/"+p] = tensor.Reuse(t.Shape...)
		}
		s["step/"+p] = tensor.OfInts([]int64{0}, 1)
	}

	return s
}
