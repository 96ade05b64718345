package methods

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/uploads"
)

// Private gives the layer of differential privacy of a stack where it is on; it is always the outermost.
func Private(m method.Method) (uploads.DP, bool) {
	d, ok := m.(uploads.DP)
	return d, ok && d.On()
}

// EpsilonLocal is what so many rounds cost at most whoever sees what a client keeps; infinite where nothing bounds it,
// and false where clients keep nothing that noise is put on.
func EpsilonLocal(m method.Method, rounds int) (float64, bool) {
	for ; m != nil; m = layer.Inside(m) {
		if d, ok := m.(personalized.DPFPL); ok && d.Noise > 0 {
			return d.Epsilon(rounds), true
		}
	}
	return 0, false
}
