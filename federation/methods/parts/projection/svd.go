package projection

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

const (
	// rankEps times max(T,d) times the largest singular value is where a singular value counts as zero: the rule of
	// numpy.linalg.matrix_rank for float32, the precision prompts are stored in.
	rankEps = 1.0 / (1 << 23)
	// tieEps times the largest singular value is the gap under which two non-zero singular values count as equal.
	tieEps = 1e-10
)

// thinSVD is p = U diag(S) V^T cut to the numerical rank r of p [T,d]: u [T,r], s [r], v [d,r] (nil when r is 0).
// The largest entry of every column of v by absolute value, the first among equals, is positive.
type thinSVD struct {
	p    *mat.Dense
	t, d int
	rank int
	s    []float64
	u, v *mat.Dense
}

func decompose(p *mat.Dense) (*thinSVD, error) {
	t, d := p.Dims()
	f := &thinSVD{p: p, t: t, d: d}
	var svd mat.SVD
	if !svd.Factorize(p, mat.SVDThin) {
		return nil, fmt.Errorf("projection: the singular value decomposition of a prompt [%d,%d] did not converge", t,
			d)
	}
	s := svd.Values(nil)
	for f.rank < len(s) && s[f.rank] > rankEps*float64(max(t, d))*s[0] {
		f.rank++
	}
	f.s = s[:f.rank]
	if f.rank == 0 {
		return f, nil
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	f.u = mat.DenseCopyOf(u.Slice(0, t, 0, f.rank))
	f.v = mat.DenseCopyOf(v.Slice(0, d, 0, f.rank))
	for j := range f.rank {
		f.fixSign(j)
	}
	return f, nil
}

func (f *thinSVD) fixSign(j int) {
	best := 0.0
	for i := range f.d {
		if x := f.v.At(i, j); max(x, -x) > max(best, -best) {
			best = x
		}
	}
	if best >= 0 {
		return
	}
	for i := range f.d {
		f.v.Set(i, j, -f.v.At(i, j))
	}
	for i := range f.t {
		f.u.Set(i, j, -f.u.At(i, j))
	}
}

// complete writes the columns of the orthonormal completion of the null space that cols names (0 .. d-rank-1) into
// dst [d, len(cols)]. The rule: column j is column rank+j of the Q of LAPACK's Householder QR (reflectors with
// beta = -sign(alpha) norm) of p^T [d,T] when p has full row rank, so that it follows p smoothly and does not depend on
// the order or the signs of singular vectors, and of V_r [d,rank] otherwise, where flipping a singular vector's sign
// changes nothing. In NumPy: numpy.linalg.qr(p.T, mode="complete")[0][:, T:].
func (f *thinSVD) complete(dst *mat.Dense, cols []int) {
	dst.Zero()
	for k, j := range cols {
		dst.Set(f.rank+j, k, 1)
	}
	if f.rank == 0 || len(cols) == 0 {
		return
	}
	var a *mat.Dense
	if f.rank == f.t {
		a = mat.DenseCopyOf(f.p.T())
	} else {
		a = mat.DenseCopyOf(f.v)
	}
	qr := a.RawMatrix()
	tau := make([]float64, f.rank)
	work := make([]float64, 1)
	lapack64.Geqrf(qr, tau, work, -1)
	work = make([]float64, int(work[0]))
	lapack64.Geqrf(qr, tau, work, len(work))
	out := dst.RawMatrix()
	work = make([]float64, 1)
	lapack64.Ormqr(blas.Left, blas.NoTrans, qr, tau, out, work, -1)
	work = make([]float64, int(work[0]))
	lapack64.Ormqr(blas.Left, blas.NoTrans, qr, tau, out, work, len(work))
}

// dropRows removes from every column of x [d,n] its part in the row space of p, of rank > 0: x - V_r V_r^T x.
func (f *thinSVD) dropRows(x *mat.Dense) {
	var c mat.Dense
	c.Mul(f.v.T(), x)
	blas64.Gemm(blas.NoTrans, blas.NoTrans, -1, f.v.RawMatrix(), c.RawMatrix(), 1, x.RawMatrix())
}
