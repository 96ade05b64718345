package optimization

import (
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// moved is to - from.
func moved(to, from tensor.Map) tensor.Map { return to.Clone().Axpy(-1, from) }

// zerosLike gives a tensor of zeros under prefix/NAME for each that m has not yet.
func zerosLike(params tensor.Map, m tensor.Map, prefix string) {
	for name, t := range params {
		if at := prefix + "/" + name; m[at] == nil {
			m[at] = tensor.New(t.Shape...)
		}
	}
}

// behind is how many clients an upload represents, where clients have equal weights.
func behind(u method.Upload) float64 {
	if u.Client == method.Summed {
		return float64(u.N)
	}
	return 1
}
