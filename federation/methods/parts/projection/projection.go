package projection

import (
	"fmt"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"promptfed/runtime/tensor"
)

// Projection is an orthogonal projector Q [d,d] built from a prompt p [T,d], in factored form. It is safe for
// concurrent use.
type Projection struct {
	// Kind is the rule that chose the kept columns; empty where the caller did.
	Kind string
	// Rank is the numerical rank of p: singular values above max(T,d) 2^-23 of the largest.
	Rank int
	// Lo and Hi bound the kept columns [Lo,Hi) of the completed V [d,d].
	Lo, Hi int
	// Arbitrary is set where p alone does not determine Q: the kept columns end inside the null space, whose basis was
	// completed by the rule of factors, or between two equal singular values. A trace then has to record Q.
	Arbitrary bool

	factors *factors
	middle  middle
	tie     int // a cut between equal non-zero singular values falls before column tie; 0 for none
}

// Project decomposes the prompt p [T,d] and chooses what a kind (see Kinds) keeps for the ratio rho in [0,1].
// A rank-deficient or zero p is fine. A p that is not finite is an error.
func Project(p *tensor.Tensor, kind string, rho float64) (*Projection, error) {
	if !(rho >= 0 && rho <= 1) {
		return nil, fmt.Errorf("projection: ratio rho is %v; it must lie in [0,1]", rho)
	}

	kept := columns[kind]
	if kept == nil {
		return nil, fmt.Errorf("projection: unknown projector %q; known: %s", kind, strings.Join(Kinds(), ", "))
	}

	q, err := ProjectColumns(p, func(rank int) (int, int) { return kept(rho, p.Shape[0], p.Shape[1], rank) })
	if err != nil {
		return nil, err
	}

	q.Kind = kind
	return q, nil
}

// ProjectColumns keeps columns [lo,hi) of the completed V [d,d] of the prompt param [T,d], which may depend on its
// rank. A lo of at most the rank and a hi of d do not depend on the choice of a basis of the null space.
func ProjectColumns(param *tensor.Tensor, columns func(rank int) (lo, hi int)) (*Projection, error) {
	m, err := matrix("prompt", param)
	if err != nil {
		return nil, err
	}

	factors, err := decompose(m)
	if err != nil {
		return nil, err
	}

	return factors.keep(columns(factors.rank))
}

func (f *factors) keep(lo, hi int) (*Projection, error) {
	projector := &Projection{Rank: f.rank, Lo: lo, Hi: hi, factors: f, middle: middle{mask: make([]float64, f.d)}}
	split := splits(lo, hi, f.rank)
	if split {
		if err := f.singularVectors(lo, hi); err != nil {
			return nil, err
		}
		projector.middle.rows = zeros(f.rank, f.rank)
	}

	for j := lo; j < hi; j++ {
		if split && j < f.rank {
			v := row(f.b, j)
			blas64.Ger(1, v, v, projector.middle.rows)
		} else {
			projector.middle.mask[j] = 1
		}
	}

	if lo == hi {
		return projector, nil
	}

	for _, cut := range []int{lo, hi} {
		switch {
		case cut > f.rank && cut < f.d:
			projector.Arbitrary = true
		case cut > 0 && cut < f.rank && f.s[cut-1]-f.s[cut] <= tieEps*f.s[0]:
			projector.Arbitrary, projector.tie = true, cut
		}
	}

	return projector, nil
}

// splits reports whether columns [lo,hi) are a part of the first rank columns without being all or none of them.
func splits(lo, hi, rank int) bool { return lo < hi && (lo > 0 && lo < rank || hi < rank) }

// middle is the projector Hᵀ Q H [d,d]: a diagonal, mask [d], plus a block of the first rows and columns, rows [r,r],
// which is empty unless the kept columns split the row space of p.
type middle struct {
	mask []float64
	rows blas64.General
}

// times replaces x [n,d] by x times m.
func (m middle) times(x blas64.General) {
	first := product(columnsOf(x, m.rows.Rows), m.rows, blas.NoTrans)
	for i := range x.Rows {
		out := row(x, i).Data
		for j, keep := range m.mask {
			out[j] *= keep
		}
		for j, v := range row(first, i).Data {
			out[j] += v
		}
	}
}

// Kept is the rank of Q.
func (q *Projection) Kept() int { return q.Hi - q.Lo }

// Dense returns Q [d,d].
func (q *Projection) Dense() *tensor.Tensor { return dense(q.factors.h, q.middle) }

// dense returns H D Hᵀ for the middle D.
func dense(h reflectors, m middle) *tensor.Tensor {
	d := len(m.mask)
	result := unit(d, d)
	m.times(result)
	h.times(result, blas.Trans)
	result = transposed(result)
	h.times(result, blas.Trans)
	for i := range d {
		for j := range i {
			result.Data[i*d+j] = result.Data[j*d+i]
		}
	}

	return toTensor(result)
}

// Apply returns x Q for x [N,d], without forming Q.
func (q *Projection) Apply(x *tensor.Tensor) (*tensor.Tensor, error) {
	projected, err := matrix("projected prompt", x)
	if err != nil {
		return nil, err
	}

	q.factors.h.times(projected, blas.NoTrans)
	q.middle.times(projected)
	q.factors.h.times(projected, blas.Trans)
	return toTensor(projected), nil
}
