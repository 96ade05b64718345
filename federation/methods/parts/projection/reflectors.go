package projection

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// reflectors is the orthogonal H = I - Yᵀ W Y [d,d] of k Householder reflectors, the rows of y [k,d], with w [k,k]
// upper triangular (Schreiber and Van Loan's compact WY form).
type reflectors struct{ y, w blas64.General }

// lq returns l [n,k] and H of a = [l 0] Hᵀ for a [n,d] and k = min(n,d), and overwrites a. Signs are LAPACK's: the
// diagonal of l has the sign opposite to that of the number that its reflector reads.
func lq(a blas64.General) (l blas64.General, h reflectors) {
	k := min(a.Rows, a.Cols)
	l, h = zeros(a.Rows, k), reflectors{rowsOf(a, 0, k), zeros(k, k)}
	products := blas64.Vector{N: a.Rows, Inc: 1, Data: make([]float64, a.Rows)} // products of the rows of a with v
	for i := range k {
		// Reflector i is I - tau v vᵀ; v takes the place of row i.
		vector := row(a, i)
		copy(l.Data[i*k:], vector.Data[:i])
		clear(vector.Data[:i])
		alpha, tail, tau := vector.Data[i], blas64.Vector{N: vector.N - i - 1, Inc: 1, Data: vector.Data[i+1:]}, 0.0
		l.Data[i*k+i] = alpha
		if square := blas64.Dot(tail, tail); square > 0 {
			beta := -math.Copysign(math.Sqrt(alpha*alpha+square), alpha)
			blas64.Scal(1/(alpha-beta), tail)
			l.Data[i*k+i], tau = beta, (beta-alpha)/beta
		}

		vector.Data[i] = 1

		blas64.Gemv(blas.NoTrans, 1, a, vector, 0, products)
		for j := range i {
			for m := j; m < i; m++ {
				h.w.Data[j*k+i] -= tau * h.w.Data[j*k+m] * products.Data[m]
			}
		}

		h.w.Data[i*k+i] = tau
		rest := blas64.Vector{N: a.Rows - i - 1, Inc: 1, Data: products.Data[i+1:]}
		blas64.Ger(-tau, rest, vector, rowsOf(a, i+1, a.Rows))
	}

	for i := k; i < a.Rows; i++ {
		copy(l.Data[i*k:], row(a, i).Data)
	}

	return l, h
}

// times replaces x [n,d] by x H, or by x Hᵀ.
func (h reflectors) times(x blas64.General, t blas.Transpose) {
	mulRows(-1, x, product(product(x, h.y, blas.Trans), h.w, t), h.y, blas.NoTrans)
}

// mulRows adds alpha a op(b) to out. Rows of a are taken one by one, which for few rows is faster than Gemm.
func mulRows(alpha float64, out, a, b blas64.General, t blas.Transpose) {
	if len(b.Data) == 0 {
		return
	}

	other := blas.Trans // a row times b is bᵀ times a column
	if t == blas.Trans {
		other = blas.NoTrans
	}

	for i := range a.Rows {
		blas64.Gemv(other, alpha, b, row(a, i), 1, row(out, i))
	}
}

// product returns a op(b).
func product(a, b blas64.General, t blas.Transpose) blas64.General {
	n := b.Cols
	if t == blas.Trans {
		n = b.Rows
	}
	out := zeros(a.Rows, n)
	mulRows(1, out, a, b, t)
	return out
}

func zeros(rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Stride: cols, Data: make([]float64, rows*cols)}
}

func row(a blas64.General, i int) blas64.Vector {
	return blas64.Vector{N: a.Cols, Inc: 1, Data: a.Data[i*a.Stride : i*a.Stride+a.Cols]}
}

func rowsOf(a blas64.General, from, to int) blas64.General {
	return blas64.General{Rows: to - from, Cols: a.Cols, Stride: a.Stride, Data: a.Data[from*a.Stride : to*a.Stride]}
}

// columnsOf returns the first n columns of a.
func columnsOf(a blas64.General, n int) blas64.General {
	return blas64.General{Rows: a.Rows, Cols: n, Stride: a.Stride, Data: a.Data}
}

func clone(a blas64.General) blas64.General {
	out := zeros(a.Rows, a.Cols)
	copy(out.Data, a.Data)
	return out
}

func transposed(a blas64.General) blas64.General {
	out := zeros(a.Cols, a.Rows)
	for i := range a.Rows {
		blas64.Copy(row(a, i), blas64.Vector{N: a.Cols, Inc: out.Stride, Data: out.Data[i:]})
	}
	return out
}

// unit returns the first rows of the identity [d,d].
func unit(rows, d int) blas64.General {
	out := zeros(rows, d)
	for i := range rows {
		out.Data[i*d+i] = 1
	}
	return out
}

// norm is the Frobenius norm.
func norm(a blas64.General) float64 {
	return blas64.Nrm2(blas64.Vector{N: len(a.Data), Inc: 1, Data: a.Data})
}

// matrix converts a tensor of rank 2, which must be finite.
func matrix(what string, input *tensor.Tensor) (blas64.General, error) {
	if i := input.NonFinite(); i >= 0 {
		return blas64.General{}, fmt.Errorf("projection: the %s %v holds %v at row %d, column %d; it must be finite",
			what, input, input.Data[i], i/input.Shape[1], i%input.Shape[1])
	}

	return linalg.Matrix(input).RawMatrix(), nil
}

func toFloat64(dst []float64, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = float64(v)
	}
}

func toFloat32(dst []float32, src []float64) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = float32(v)
	}
}

// toTensor converts a matrix without gaps between its rows.
func toTensor(m blas64.General) *tensor.Tensor {
	out := tensor.New(m.Rows, m.Cols)
	toFloat32(out.Data, m.Data)
	return out
}
