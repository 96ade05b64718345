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

// packing returns the layout of the factors for a parameter [t,w].
func (o OfPrompt) packing(t, w int) packing {
	m := min(t, w)
	lo, hi := columns[o.Projector](o.Ratio, t, w, m)
	k := packing{m, w, splits(lo, hi, m), o.Gradient == "through", []int{m * w, w, m * m}}
	if k.splits {
		k.sizes = append(k.sizes, m*m)
	}

	if k.through {
		k.sizes = append(k.sizes, m*w)
	}

	return k
}

// Factors returns the factors of the projector of a parameter [T,w] as one tensor, and the function that returns the
// gradient of the parameter from that of the factors.
func (o OfPrompt) Factors(parameter *tensor.Tensor) (*tensor.Tensor, method.Pullback, error) {
	q, err := Project(parameter, o.Projector, o.Ratio)
	if err != nil {
		return nil, nil, err
	}

	k := o.packing(parameter.Shape[0], parameter.Shape[1])
	return k.pack(q), func(dy *tensor.Tensor) ([]*tensor.Tensor, error) {
		x := zeros(q.Rank, k.d)
		toFloat64(x.Data, dy.Data[k.size()-k.m*k.d:][:len(x.Data)])
		dp, err := q.vjp(x)
		return []*tensor.Tensor{toTensor(dp)}, err
	}, nil
}

// Apply returns prompt Q for the projector Q [w,w] of a parameter of [T,w], Q = H D Hᵀ of reflectors and middle. A
// trace has Q under name.
func (o OfPrompt) Apply(scope *method.Scope, name string, prompt, parameter graph.Node) graph.Node {
	packing := o.packing(parameter.Dim(0), scope.Task().Width)
	packed := scope.Host(name, method.HostFunc{Every: o.Every, Trace: packing.dense, Differentiable: packing.through,
		Forward: func(in ...*tensor.Tensor) (*tensor.Tensor, method.Pullback, error) { return o.Factors(in[0]) }},
		[]int{packing.size()}, parameter)

	parts := packed.Detach().Split(0, packing.sizes...)
	vectors, mask, triangular := parts[0].Reshape(packing.m, packing.d), parts[1], parts[2].Reshape(packing.m,
		packing.m)
	first := scope.Graph().Const(toTensor(unit(packing.m, packing.d)))
	u := prompt.Sub(prompt.MatMulT(vectors).MatMul(triangular).MatMul(vectors)) // prompt H
	v := u.Mul(mask)                                                            // prompt H D
	if packing.splits {
		v = v.Add(u.Slice(1, 0, packing.m).MatMul(parts[3].Reshape(packing.m, packing.m)).MatMul(first))
	}

	if packing.through { // adds nothing but the gradient of D
		r, u := packed.Slice(0, packing.size()-packing.m*packing.d, packing.size()).Reshape(packing.m, packing.d),
			u.Detach()
		v = v.Add(u.Slice(1, 0, packing.m).MatMul(r)).Add(u.MatMulT(r).MatMul(first))
	}

	return v.Sub(v.MatMulT(vectors).MatMulT(triangular).MatMul(vectors))
}
