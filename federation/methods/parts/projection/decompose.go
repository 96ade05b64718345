package projection

import (
	"fmt"
	"math"
	"slices"

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
	// gapEps times the largest eigenvalue of a Gram matrix is the gap from which on eigenvectors on both sides of it
	// are exact to 1e-9, in spite of the squared condition number.
	gapEps = 1e-6
)

// factors is a prompt p [T,d] of numerical rank r as L N, N [r,d] the first r rows of Hᵀ. The other d-r rows of Hᵀ
// complete the null space: H is the Q of LAPACK's Householder QR (reflectors with beta = -sign(alpha) norm) of pᵀ
// [d,T] when p has rank min(T,d), so that it follows p smoothly and does not depend on the order or the signs of
// singular vectors, and otherwise of the first r right singular vectors [d,r], where flipping a sign changes nothing.
// In NumPy: numpy.linalg.qr(p.T, mode="complete")[0][:, T:].
type factors struct {
	t, d, rank int
	h          reflectors     // rank of them
	l          blas64.General // [T,rank]
	inverse    blas64.General // of l; empty where l is not known to be regular without singular values

	s []float64      // singular values [rank] of p by falling value; nil before they are needed
	b blas64.General // [rank,rank], whose row i makes the right singular vector i from the rows of N
}

// decompose overwrites p.
func decompose(p blas64.General) (*factors, error) {
	factors := &factors{t: p.Rows, d: p.Cols, rank: min(p.Rows, p.Cols)}
	factors.l, factors.h = lq(p)
	if factors.invert() {
		return factors, nil
	}

	if err := factors.decomposeL(); err != nil {
		return nil, err
	}

	all := factors.rank
	for factors.rank = 0; factors.rank < all && factors.s[factors.rank] > factors.smallest()*factors.s[0]; {
		factors.rank++
	}

	if factors.rank == all {
		return factors, nil
	}

	factors.s, factors.b = factors.s[:factors.rank], rowsOf(factors.b, 0, factors.rank)
	if factors.rank == 0 {
		factors.h = reflectors{}
		return factors, nil
	}

	n := unit(all, factors.d)
	factors.h.times(n, blas.Trans)
	old := factors.b
	factors.b, factors.h = lq(product(old, n, blas.NoTrans))
	factors.l = product(product(factors.l, old, blas.Trans), factors.b, blas.NoTrans)
	return factors, nil
}

// smallest is where a singular value counts as zero, as a share of the largest.
func (f *factors) smallest() float64 { return rankEps * float64(max(f.t, f.d)) }

// invert sets the inverse of l, and reports whether it proves that no singular value counts as zero: in Frobenius
// norms, the smallest is at least 1/‖l⁻¹‖ and the largest at most ‖l‖.
func (f *factors) invert() bool {
	if f.t > f.d {
		return false
	}

	inverse := clone(f.l)
	if !lapack64.Trtri(blas64.Triangular{N: f.t, Stride: f.t, Data: inverse.Data, Uplo: blas.Lower,
		Diag: blas.NonUnit}) || !(norm(inverse)*norm(f.l)*f.smallest() < 0.999) {
		return false
	}

	f.inverse = inverse
	return true
}

// decomposeL sets s and b by the singular value decomposition of l.
func (f *factors) decomposeL() error {
	var svd mat.SVD
	if !svd.Factorize(mat.NewDense(f.t, f.rank, f.l.Data), mat.SVDThin) {
		return fmt.Errorf("projection: the singular value decomposition of a prompt [%d,%d] did not converge", f.t, f.d)
	}

	var v mat.Dense
	svd.VTo(&v)
	f.s, f.b = svd.Values(nil), transposed(v.RawMatrix())
	return nil
}

// singularVectors sets s and b, unless they are there. Cuts are numbers of columns before which what is kept changes:
// where their gaps permit it, the eigenvectors of lᵀ l are enough.
func (f *factors) singularVectors(cuts ...int) error {
	if f.s != nil {
		return nil
	}

	rank, lT := f.rank, transposed(f.l)
	var eig mat.EigenSym
	if !eig.Factorize(mat.NewSymDense(rank, product(lT, lT, blas.Trans).Data), true) {
		return f.decomposeL()
	}

	values := eig.Values(nil)
	slices.Reverse(values)
	for _, cut := range cuts {
		if cut > 0 && cut < rank && !(values[cut-1]-values[cut] > gapEps*values[0]) {
			return f.decomposeL()
		}
	}

	var v mat.Dense
	eig.VectorsTo(&v)
	f.s, f.b = values, zeros(rank, rank)
	for i, value := range values {
		f.s[i] = math.Sqrt(max(0, value))
		mat.Col(row(f.b, i).Data, rank-1-i, &v)
	}

	return nil
}
