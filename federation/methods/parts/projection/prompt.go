package projection

import (
	"gonum.org/v1/gonum/blas/blas64"

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

// packing is the layout of a projection's factors as one tensor, of fixed size for prompts [T,d] of any rank: y [m,d],
// mask [d], w [m,m], then, where it splits, rows [m,m], and where the gradient goes through, zeros [m,d]; m is
// min(T,d).
type packing struct {
	m, d            int
	splits, through bool
	sizes           []int // of the parts
}

// size is the number of elements.
func (k packing) size() (n int) {
	for _, part := range k.sizes {
		n += part
	}
	return n
}

func (k packing) parts(x []float32) (parts [][]float32) {
	for _, n := range k.sizes {
		parts, x = append(parts, x[:n]), x[n:]
	}
	return parts
}

// pack returns factors of Q.
func (k packing) pack(projector *Projection) *tensor.Tensor {
	out := tensor.New(k.size())
	parts, h := k.parts(out.Data), projector.factors.h
	toFloat32(parts[0], h.y.Data)
	toFloat32(parts[1], projector.middle.mask)
	corner := func(dst []float32, a blas64.General) {
		for i := range a.Rows {
			toFloat32(dst[i*k.m:], row(a, i).Data)
		}
	}

	corner(parts[2], h.w)
	if k.splits {
		corner(parts[3], projector.middle.rows)
	}

	return out
}

// dense returns Q [d,d] of pack.
func (k packing) dense(packed *tensor.Tensor) *tensor.Tensor {
	parts := k.parts(packed.Data)
	general := func(part, cols int) blas64.General {
		a := zeros(len(parts[part])/cols, cols)
		toFloat64(a.Data, parts[part])
		return a
	}

	m := middle{mask: general(1, k.d).Data}
	if k.splits {
		m.rows = general(3, k.m)
	}

	return dense(reflectors{general(0, k.d), general(2, k.m)}, m)
}
