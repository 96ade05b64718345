package pretrain

import (
	"maps"

	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// decayMatrices adds decay times the parameter to the updates of parameters with two or more axes.
func decayMatrices(decay float64) optim.Transform {
	all := optim.AddDecayedWeights(decay)
	return optim.Transform{Name: all.Name, Update: func(updates, state, params tensor.Map) tensor.Map {
		matrices, out := tensor.Map{}, tensor.Map{}
		for name, u := range updates {
			if len(u.Shape) > 1 {
				matrices[name] = u
			} else {
				out[name] = u
			}
		}
		maps.Copy(out, all.Update(matrices, state, params))
		return out
	}}
}
