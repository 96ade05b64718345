package methods

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/uploads"
)

// DPLayer returns the layer of differential privacy of a stack, if it is on; it is always the outermost layer.
func DPLayer(m method.Method) (uploads.DP, bool) {
	for l := range method.Layers(m) {
		if d, ok := l.(uploads.DP); ok && d.On() {
			return d, true
		}
	}
	return uploads.DP{}, false
}

// EpsilonLocal returns the epsilon of that many rounds against those who see a client's private parameters, infinite
// where nothing bounds it. It returns false where private parameters are trained without noise.
func EpsilonLocal(m method.Method, rounds int) (float64, bool) {
	for l := range method.Layers(m) {
		if d, ok := l.(personalized.DPFPL); ok && d.Noise > 0 {
			return d.Epsilon(rounds), true
		}
	}
	return 0, false
}
