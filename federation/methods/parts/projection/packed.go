package projection

import (
	"gonum.org/v1/gonum/blas/blas64"

	"promptfed/runtime/tensor"
)

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
