package projection

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// OfPrompt is the projection of a prompt off another one, as options of FedPHA and of method files state it.
type OfPrompt struct {
	Projector string           `json:"projector"` // what is kept: ExactNull, ...
	Ratio     float64          `json:"ratio"`
	Gradient  string           `json:"gradient"` // of the projector: detach or through
	Every     method.Frequency `json:"every"`    // of the decomposition
}

// Apply returns prompt Q for the projector Q [w,w] of a parameter of [T,w]. Where Q has no gradient, factors of Q are
// enough. A trace has Q under name.
func (o OfPrompt) Apply(s *method.Scope, name string, prompt, parameter graph.Node) graph.Node {
	w, f := s.Task().Width, method.HostFunc{Every: o.Every}
	if o.Gradient == "detach" {
		f.Forward = func(in ...*tensor.Tensor) (*tensor.Tensor, error) {
			return PackedFactors(in[0], o.Projector, o.Ratio)
		}
		f.Trace = UnpackDense
		q := s.Host(name, f, []int{w + 1, -1}, parameter)
		b, rest := q.Slice(0, 0, w), q.Slice(0, w, w+1).Slice(1, 0, 1)
		inside := prompt.MatMul(b).MatMulT(b)
		return inside.Add(rest.Mul(prompt.Sub(inside).Sub(inside)))
	}
	f.Trace = func(q *tensor.Tensor) *tensor.Tensor { return q }
	f.Forward = func(in ...*tensor.Tensor) (*tensor.Tensor, error) { return Projector(in[0], o.Projector, o.Ratio) }
	f.VJP = func(dy *tensor.Tensor, in ...*tensor.Tensor) ([]*tensor.Tensor, error) {
		d, err := ProjectorVJP(in[0], o.Projector, o.Ratio, dy)
		return []*tensor.Tensor{d}, err
	}
	return prompt.MatMul(s.Host(name, f, []int{w, w}, parameter))
}
