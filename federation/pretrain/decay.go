package pretrain

import (
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// decayMatrices adds decay times the parameter to the updates of parameters with two or more axes.
func decayMatrices(decay float64) optim.Transform {
	all := optim.AddDecayedWeights(decay)
	return optim.Transform{Name: all.Name, Update: func(updates, state, params tensor.Map) {
		matrices := tensor.Map{}
		for name, u := range updates {
			if len(u.Shape) > 1 {
				matrices[name] = u
			}
		}
		all.Update(matrices, state, params)
	}}
}
