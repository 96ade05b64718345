package projection

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// vjp returns the gradient [T,d] of <G, Q(p)> with respect to the prompt p [T,d] behind q, from the first r rows x
// [r,d] of Hᵀ (G+Gᵀ) H. They are the gradient of R [r,d], at zero, where Q = H (D + Eᵀ R + Rᵀ E) Hᵀ, D the
// middle of Q and E the first r rows of the identity. It overwrites x.
//
// Q is a spectral projector of M = p^T p, so that with removed directions i and kept directions j
//
//	dQ = sum_ij v_i^T dM v_j / (s_j^2 - s_i^2) (v_i v_j^T + v_j v_i^T),
//
// where only gaps between kept and removed singular values count (Kato, Perturbation Theory for Linear Operators,
// II.2). Null directions have s = 0.
//
// Where the cut falls inside the null space (Arbitrary), pairs of a kept and a removed null direction have no gap and
// are left out: the completion moves minimally, just enough to stay orthogonal to the row space. That is not the
// derivative of the Householder rule of factors, which turns the basis inside the null space as well. PyTorch 1.13
// through torch.linalg.svd(full_matrices=True) drops every gradient of the completing columns, hence returns zero for
// eq9; through the reduced SVD it returns NaN for a zero prompt, and huge or infinite values for a rank-deficient one,
// where this derivative stays finite and is zero for a zero prompt.
//
// A cut between two equal non-zero singular values has no derivative and is an error.
func (q *Projection) vjp(x blas64.General) (blas64.General, error) {
	factors, r := q.factors, q.Rank
	if r == 0 || q.Lo >= q.Hi {
		return zeros(factors.t, factors.d), nil
	}

	if q.tie > 0 {
		return zeros(factors.t, factors.d), fmt.Errorf("projection: projector %s cuts between equal singular values "+
			"%d and %d (%g) of the prompt, where it has no derivative; detach the projector or change its ratio",
			q.Kind, q.tie, q.tie+1, factors.s[q.tie])
	}

	// Between row and null directions: a kept row pairs with removed null directions, a removed row with kept ones.
	within, first, mask := q.withinRows(columnsOf(x, r)), product(q.middle.rows, x, blas.NoTrans), q.middle.mask

	for i := range r {
		pairs := row(x, i).Data
		for j, v := range pairs {
			pairs[j] = (mask[0] - mask[j]) * v
		}
		if first.Rows > 0 {
			blas64.Axpy(1, row(first, i), row(x, i))
		}
		copy(pairs, row(within, i).Data)
	}

	dp := product(factors.inverseT(), x, blas.NoTrans)
	factors.h.times(dp, blas.Trans)
	return dp, nil
}

// withinRows returns what vjp multiplies by the pseudo-inverse for pairs of row directions, from x [r,r].
func (q *Projection) withinRows(x blas64.General) blas64.General {
	factors, out := q.factors, zeros(q.Rank, q.Rank)
	if !splits(q.Lo, q.Hi, q.Rank) {
		return out
	}

	x = product(product(factors.b, x, blas.NoTrans), factors.b, blas.Trans)
	kept := func(j int) bool { return j >= q.Lo && j < q.Hi }
	for i, si := range factors.s {
		for j, sj := range factors.s {
			if !kept(i) && kept(j) {
				h := x.Data[i*x.Stride+j] / ((sj - si) * (sj + si))
				out.Data[j*out.Stride+i], out.Data[i*out.Stride+j] = h*sj*sj, h*si*si
			}
		}
	}

	b := transposed(factors.b)
	return product(product(b, out, blas.NoTrans), b, blas.Trans)
}

// inverseT returns the transposed pseudo-inverse of l, [T,r].
func (f *factors) inverseT() blas64.General {
	if len(f.inverse.Data) > 0 {
		return transposed(f.inverse)
	}

	scaled := clone(f.b)
	for i, s := range f.s {
		blas64.Scal(1/(s*s), row(scaled, i))
	}

	return product(f.l, product(transposed(f.b), scaled, blas.NoTrans), blas.NoTrans)
}
