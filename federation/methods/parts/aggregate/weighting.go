package aggregate

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Weighting is the option of how clients count in the server's mean. Where a layer inside counts them alike, they are.
type Weighting struct {
	Weighting string `config:"weighting" in:"uniform|examples" help:"weights of clients in the server's mean"`
}

// Examples and Uniform are the two ways to count.
var (
	Examples = Weighting{"examples"} // a client counts as often as it has examples
	Uniform  = Weighting{"uniform"}  // a client counts once
)

// Above returns how clients count in a mean that the layers inside make: alike if one of them counts them alike.
func (w Weighting) Above(inner method.Method) Weighting {
	for l := range method.Layers(inner) {
		if method.PropertiesOf(l).Mean == method.Uniform {
			return Uniform
		}
	}
	return w
}

// Average lets the layer inside average the uploads, and returns the shared parameters from before that.
func (w Weighting) Average(inner method.Method, global *method.Global, ups []method.Upload) (old tensor.Map,
	err error) {
	old = global.Shared.Clone()
	return old, inner.Merge(global, w.Counted(ups))
}

// Counted returns uploads with their weights: with uniform each has the weight of one example.
func (w Weighting) Counted(ups []method.Upload) []method.Upload {
	if w.Weighting == "uniform" {
		ups = slices.Clone(ups)
		for i := range ups {
			ups[i].N = 1
		}
	}
	return ups
}

// WeightedMean is FedAvg with the option Weighting.
type WeightedMean struct {
	method.Base
	Weighting `config:",squash"`
}

// ExamplesMean and UniformMean are its two forms.
var (
	ExamplesMean = WeightedMean{Weighting: Examples}
	UniformMean  = WeightedMean{Weighting: Uniform}
)

// Properties declares that the server needs nothing of uploads but the mean, with the weights of option weighting.
func (m WeightedMean) Properties() method.Properties {
	return method.Properties{Mean: method.Weights(m.Weighting.Weighting)}
}

// Merge replaces the shared parameters by their mean over the uploads, by examples (FedAvg) or with equal weights.
func (m WeightedMean) Merge(global *method.Global, ups []method.Upload) error {
	return m.Base.Merge(global, m.Counted(ups))
}
