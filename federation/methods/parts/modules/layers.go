package modules

import (
	"math"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Learned layers that the server averages, as PyTorch lays them out: a linear layer NAME is NAME/w [out,in] and NAME/b
// [out], a layer norm NAME is NAME/gain and NAME/bias.

// Linear declares the linear layer NAME.
func Linear(name string, out, in int) []method.Param {
	return []method.Param{{Name: name + "/w", Shape: []int{out, in}}, {Name: name + "/b", Shape: []int{out}}}
}

// LayerNorm declares the layer norm NAME of width w.
func LayerNorm(name string, w int) []method.Param {
	return []method.Param{{Name: name + "/gain", Shape: []int{w}}, {Name: name + "/bias", Shape: []int{w}}}
}

// ApplyLinear applies the linear layer NAME to rows [n,in].
func ApplyLinear(scope *method.Scope, name string, x graph.Node) graph.Node {
	return nn.Linear(x, scope.Param(name+"/w"), scope.Param(name+"/b"), 1, 1)
}

// ApplyLayerNorm applies the layer norm NAME to rows.
func ApplyLayerNorm(scope *method.Scope, name string, x graph.Node) graph.Node {
	return nn.LayerNorm(x, scope.Param(name+"/gain"), scope.Param(name+"/bias"), 1e-5)
}

// InitLayers draws the initial values of the layers under a name as torch.nn.Linear and LayerNorm do: weights and
// biases uniform within 1/sqrt(in), gains 1.
func InitLayers(seed uint64, shared tensor.Map, under string) {
	for name, t := range shared {
		layer, ok := strings.CutSuffix(name, "/b")
		switch {
		case !strings.HasPrefix(name, under+"/"):
		case ok:
			InitUniform(seed, name, t, 1/math.Sqrt(float64(shared[layer+"/w"].Shape[1])))
		case strings.HasSuffix(name, "/w"):
			InitUniform(seed, name, t, 1/math.Sqrt(float64(t.Shape[1])))
		case strings.HasSuffix(name, "/gain"):
			for i := range t.Data {
				t.Data[i] = 1
			}
		}
	}
}

// InitUniform fills a tensor with uniform draws from within a bound.
func InitUniform(seed uint64, name string, t *tensor.Tensor, bound float64) {
	copy(t.Data, method.DrawUniform(seed, name, []int{1, t.Len()}).Data)
	linalg.Scale(t, bound)
}
