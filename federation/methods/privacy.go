package methods

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/uploads"
)

// Private returns the layer of differential privacy of a stack, if it is on; it is always the outermost layer.
func Private(m method.Method) (uploads.DP, bool) {
	d, ok := m.(uploads.DP)
	return d, ok && d.On()
}

// EpsilonLocal returns the epsilon of that many rounds against those who see a client's private parameters, infinite
// where nothing bounds it. It returns false where private parameters are trained without noise.
func EpsilonLocal(m method.Method, rounds int) (float64, bool) {
	for ; m != nil; m = layer.Inside(m) {
		if d, ok := m.(personalized.DPFPL); ok && d.Noise > 0 {
			return d.Epsilon(rounds), true
		}
	}
	return 0, false
}
