package projection

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/tensor"
)

// ProjectorVJP returns the gradient [T,d] of <dQ, Q(p)> with respect to the prompt p [T,d], dQ [d,d]; see
// Projection.VJP.
func ProjectorVJP(p *tensor.Tensor, kind string, rho float64, dq *tensor.Tensor) (*tensor.Tensor, error) {
	q, err := Project(p, kind, rho)
	if err != nil {
		return nil, err
	}
	return q.VJP(dq)
}

// VJP returns the gradient [T,d] of <dQ, Q(p)> with respect to the prompt p [T,d] behind q, for dQ [d,d].
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
// derivative of the Householder rule of complete, which turns the basis inside the null space as well. PyTorch 1.13
// through torch.linalg.svd(full_matrices=True) drops every gradient of the completing columns, hence returns zero for
// eq9; through the reduced SVD it returns NaN for a zero prompt, and huge or infinite values for a rank-deficient one,
// where this derivative stays finite and is zero for a zero prompt.
//
// A cut between two equal non-zero singular values has no derivative and is an error.
func (q *Projection) VJP(dq *tensor.Tensor) (*tensor.Tensor, error) {
	g, err := q.rows("projector's gradient", dq)
	if err != nil {
		return nil, err
	}
	if n, d := g.Dims(); n != d {
		return nil, fmt.Errorf("projection: the projector's gradient has shape %v; it must be [%d,%d]", dq.Shape, d, d)
	}
	dp, err := q.vjp(g)
	if err != nil {
		return nil, err
	}
	return toTensor(dp), nil
}

func (q *Projection) vjp(g *mat.Dense) (*mat.Dense, error) {
	f := q.svd
	dp := mat.NewDense(f.t, f.d, nil)
	if f.rank == 0 || q.Lo >= q.Hi {
		return dp, nil
	}
	if q.tie > 0 {
		return nil, fmt.Errorf("projection: projector %s cuts between equal singular values %d and %d (%g) of the "+
			"prompt, where it has no derivative; detach the projector or change its ratio",
			q.Kind, q.tie, q.tie+1, f.s[q.tie])
	}
	var w, vw mat.Dense
	w.Mul(g, f.v) // (G + Gᵀ) V for the gradient G of Q
	blas64.Gemm(blas.Trans, blas.NoTrans, 1, g.RawMatrix(), f.v.RawMatrix(), 1, w.RawMatrix())
	vw.Mul(f.v.T(), &w)

	// dp = U a, where row l of a [r,d] collects what multiplies u_l.
	pairs := mat.NewDense(f.rank, f.rank, nil)
	kept := func(j int) bool { return j >= q.Lo && j < q.Hi }
	for i, si := range f.s {
		for j, sj := range f.s {
			if kept(i) || !kept(j) {
				continue
			}
			h := vw.At(i, j) / ((sj - si) * (sj + si))
			pairs.Set(j, i, h*sj)
			pairs.Set(i, j, h*si)
		}
	}
	a := mat.NewDense(f.rank, f.d, nil)
	a.Mul(pairs, f.v.T())

	keptNull := q.nullPart(&w)
	f.dropRows(&w)
	for l, s := range f.s {
		row := a.RawRowView(l)
		for k := range row {
			if kept(l) {
				row[k] += (w.At(k, l) - keptNull.At(k, l)) / s
			} else {
				row[k] -= keptNull.At(k, l) / s
			}
		}
	}
	dp.Mul(f.u, a)
	return dp, nil
}

// nullPart returns the part of every column of x [d,n] that lies in the kept null directions.
func (q *Projection) nullPart(x *mat.Dense) *mat.Dense {
	out := mat.DenseCopyOf(x)
	if q.complement {
		q.svd.dropRows(out)
	} else {
		out.Zero()
	}
	if q.basis == nil {
		return out
	}
	_, k := q.basis.Dims()
	if k == q.rowCols {
		return out
	}
	null := q.basis.Slice(0, q.svd.d, q.rowCols, k).(*mat.Dense)
	var c, part mat.Dense
	c.Mul(null.T(), x)
	part.Mul(null, &c)
	if q.complement {
		out.Sub(out, &part)
	} else {
		out.Copy(&part)
	}
	return out
}
