package optimization

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// difference returns to - from.
func difference(to, from tensor.Map) tensor.Map { return to.Clone().Axpy(-1, from) }

// zerosLike adds to m a tensor of zeros prefix/NAME for each parameter, unless m has it.
func zerosLike(params tensor.Map, m tensor.Map, prefix string) {
	for name, t := range params {
		if at := prefix + "/" + name; m[at] == nil {
			m[at] = tensor.New(t.Shape...)
		}
	}
}

// clientsOf returns the number of clients that an upload represents, where clients have equal weights.
func clientsOf(u method.Upload) float64 {
	if u.Client == method.AggregatedClient {
		return float64(u.N)
	}
	return 1
}

// countMoving counts a step in which some shared parameter is not frozen, under a name of the turn's cache. FedRep's
// first passes freeze all.
func countMoving(local *method.Local, name string) {
	frozen := func(parameter string) bool { return slices.Contains(local.Frozen, parameter) }
	if moving := slices.DeleteFunc(local.Shared.Names(), frozen); len(moving) > 0 {
		steps, _ := local.Cache[name].(int)
		local.Cache[name] = steps + 1
	}
}
