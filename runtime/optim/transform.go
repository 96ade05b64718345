package optim

import (
	"math"

	"promptfed/runtime/tensor"
)

// Transform is one stage of an optimizer.
type Transform struct {
	// Name is the first part of the names of its state. An optimizer has one transform of a name.
	Name string
	// Slots names the tensors of its state, each of the shape of its parameter; they are 0 before its first step.
	Slots []string
	// Update changes the update of a parameter, and its slots, in place. step counts the steps of the parameter with
	// the one under way; it is 0 for a transform without slots. The tensors may hold a part of the elements of their
	// shape, the same part in all.
	Update func(update, param *tensor.Tensor, slots []*tensor.Tensor, step int64)
	// Joint takes the place of Update where an element of an update depends on others. It changes all updates.
	Joint func(updates tensor.Map)
}

// key returns the name of a part of the state of a parameter.
func (t Transform) key(slot, parameter string) string { return t.Name + "/" + slot + "/" + parameter }

// AddDecayedWeights adds decay times the parameter to the update. Before a momentum it is L2 regularisation (SGD,
// Adam), after it decoupled weight decay (AdamW, Loshchilov and Hutter 2019).
func AddDecayedWeights(decay float64) Transform {
	return Transform{Name: "decay", Update: func(update, param *tensor.Tensor, _ []*tensor.Tensor, _ int64) {
		update.Axpy(decay, param)
	}}
}

// ClipByValue limits every element to [-limit, limit], as torch.nn.utils.clip_grad_value_, except infinities, which an
// optimizer refuses.
func ClipByValue(limit float64) Transform {
	return Transform{Name: "clip_value", Update: func(update, _ *tensor.Tensor, _ []*tensor.Tensor, _ int64) {
		for i, x := range update.Data {
			if x-x == 0 {
				update.Data[i] = float32(max(-limit, min(limit, float64(x))))
			}
		}
	}}
}

// ClipByGlobalNorm scales all updates by min(1, limit/(norm+1e-6)), where norm is their joint Euclidean norm, as
// torch.nn.utils.clip_grad_norm_.
func ClipByGlobalNorm(limit float64) Transform {
	return Transform{Name: "clip_norm", Joint: func(updates tensor.Map) {
		updates.Scale(min(1, limit/(updates.Norm()+1e-6)))
	}}
}

// Momentum applies the momentum of torch.optim.SGD: b = update in the first step of a parameter and b = momentum b +
// (1-dampening) update in later ones; the update becomes b or, with Nesterov, update + momentum b.
func Momentum(momentum, dampening float64, nesterov bool) Transform {
	return Transform{
		Name:  "momentum",
		Slots: []string{"b"},
		Update: func(update, _ *tensor.Tensor, slots []*tensor.Tensor, step int64) {
			b := slots[0]
			keep, take := momentum, 1-dampening
			if step == 1 {
				keep, take = 0, 1
			}

			if !nesterov {
				b.Blend(keep, take, update)
				copy(update.Data, b.Data)
				return
			}

			for i, x := range update.Data {
				m := keep*float64(b.Data[i]) + take*float64(x)
				b.Data[i], update.Data[i] = float32(m), float32(float64(x)+momentum*m)
			}
		},
	}
}

// ScaleByAdam applies the step of Adam (Kingma and Ba 2015) as in torch.optim.Adam: m and v are running means of u and
// u^2, and the update becomes m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps), where t counts the steps of each parameter.
func ScaleByAdam(beta1, beta2, eps float64) Transform {
	return Transform{
		Name:  "adam",
		Slots: []string{"m", "v"},
		Update: func(update, _ *tensor.Tensor, slots []*tensor.Tensor, step int64) {
			m, v, t := slots[0], slots[1], float64(step)
			c1, c2 := 1-math.Pow(beta1, t), 1-math.Pow(beta2, t)
			for i, x := range update.Data {
				g := float64(x)
				mi := beta1*float64(m.Data[i]) + (1-beta1)*g
				vi := beta2*float64(v.Data[i]) + (1-beta2)*g*g
				m.Data[i], v.Data[i] = float32(mi), float32(vi)
				update.Data[i] = float32(mi / c1 / (math.Sqrt(vi/c2) + eps))
			}
		},
	}
}
