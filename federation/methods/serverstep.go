package methods

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Weighting says how clients count in the mean from which a wrapper of the server's step starts.
type Weighting struct {
	Weighting string `config:"weighting" help:"weights of clients in the server's mean: uniform or examples"`
}

// Check refuses any other.
func (w Weighting) Check() error { return OneOf("weighting", w.Weighting, "uniform", "examples") }

// Average lets the layer inside make the mean and gives the shared parameters from before it.
func (w Weighting) Average(inner method.Method, g *method.Global, ups []method.Upload) (old tensor.Map, err error) {
	old = g.Shared.Clone()
	return old, inner.Merge(g, w.counted(ups))
}

// counted gives uploads as they count: uniform, each has the weight of one example.
func (w Weighting) counted(ups []method.Upload) []method.Upload {
	if w.Weighting == "uniform" {
		ups = slices.Clone(ups)
		for i := range ups {
			ups[i].N = 1
		}
	}
	return ups
}

// WeightedMean is FedAvg in which clients count as an option says.
type WeightedMean struct {
	method.Base
	Weighting `config:",squash"`
}

var uniformMean = WeightedMean{Weighting: Weighting{"uniform"}}

func (m WeightedMean) Properties() method.Properties {
	return method.Properties{Mean: method.Weights(m.Weighting.Weighting)}
}

func (m WeightedMean) Merge(g *method.Global, ups []method.Upload) error {
	return m.Base.Merge(g, m.counted(ups))
}

// MustShare refuses a stack that leaves the server nothing to average.
func MustShare(m method.Method) error {
	if len(SharedNames(m)) == 0 {
		return errors.New("it changes the server's average, but the base method shares nothing; choose another base " +
			"method, or remove it")
	}
	return nil
}

// extra gives what a client uploaded beside the shared parameters, in the shape that it must have.
func extra(u method.Upload, name string, shape ...int) (*tensor.Tensor, error) {
	t := u.Extra[name]
	if t == nil || t.IsInt() || !slices.Equal(t.Shape, shape) {
		return nil, fmt.Errorf("client %d uploaded %v for %s, which must be float32%v; the client runs another "+
			"experiment", u.Client, t, name, shape)
	}
	return t, nil
}

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
