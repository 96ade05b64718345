package calibration

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// principal are the principal axes of a symmetric matrix without negative eigenvalues, such as a covariance: its unit
// eigenvectors and their eigenvalues, the largest first.
type principal struct {
	Vectors [][]float64 // each of length d
	Sizes   []float64   // above zero
}

// axisEps times the square root of d times the largest eigenvalue is where an eigenvalue counts as zero: what rounding
// the matrix to float32 adds stays below it.
const axisEps = 1.0 / (1 << 23)

// principalAxes returns the first axes of a covariance [d,d], at most that many, of eigenvalues above zero. The largest
// entry of every vector by absolute value, the first among equals, is positive.
func principalAxes(cov *mat.SymDense, most int) (principal, error) {
	var e mat.EigenSym
	d := cov.SymmetricDim()
	if !e.Factorize(cov, true) {
		return principal{}, fmt.Errorf("ggtpc: the eigendecomposition of a covariance [%d,%d] did not converge", d, d)
	}

	var v mat.Dense
	e.VectorsTo(&v)
	return axes(e.Values(nil), d, most, func(j int) []float64 { return mat.Col(nil, j, &v) }), nil
}

// rowAxes returns principalAxes of rowsᵀ rows for rows [r,d], from the smaller of the two Gram matrices.
func rowAxes(rows *mat.Dense, most int) (principal, error) {
	r, dim := rows.Dims()
	var m mat.SymDense
	if r >= dim {
		m.SymOuterK(1, rows.T())
		return principalAxes(&m, most)
	}

	m.SymOuterK(1, rows)
	var e mat.EigenSym
	if !e.Factorize(&m, true) {
		return principal{}, fmt.Errorf("ggtpc: the eigendecomposition of %d rows of width %d did not converge", r, dim)
	}

	var w mat.Dense
	e.VectorsTo(&w)
	return axes(e.Values(nil), dim, most, func(j int) []float64 {
		u := mat.NewVecDense(dim, nil)
		u.MulVec(rows.T(), w.ColView(j))
		u.ScaleVec(1/mat.Norm(u, 2), u)
		return u.RawVector().Data
	}), nil
}

// axes takes the last columns, which have the largest values.
func axes(values []float64, d, most int, column func(int) []float64) principal {
	var a principal
	last := len(values) - 1
	zero := axisEps * math.Sqrt(float64(d)) * values[last]
	for j := last; j >= 0 && len(a.Sizes) < most && values[j] > max(zero, 0); j-- {
		a.Sizes, a.Vectors = append(a.Sizes, values[j]), append(a.Vectors, upright(column(j)))
	}
	return a
}

func upright(vector []float64) []float64 {
	best := 0.0
	for _, x := range vector {
		if math.Abs(x) > math.Abs(best) {
			best = x
		}
	}

	if best < 0 {
		for i := range vector {
			vector[i] = -vector[i]
		}
	}

	return vector
}
