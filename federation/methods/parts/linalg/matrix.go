package linalg

import (
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/tensor"
)

// Matrix returns a tensor of two dimensions as a matrix.
func Matrix(t *tensor.Tensor) *mat.Dense {
	m := mat.NewDense(t.Shape[0], t.Shape[1], nil)
	data := m.RawMatrix().Data[:len(t.Data)]
	for i, x := range t.Data {
		data[i] = float64(x)
	}
	return m
}

// Store copies a matrix into a tensor.
func Store(t *tensor.Tensor, m *mat.Dense) {
	for i, x := range m.RawMatrix().Data {
		t.Data[i] = float32(x)
	}
}

// Orthonormalize makes columns orthonormal by modified Gram-Schmidt. A column in the span of the columns before it
// becomes 0.
func Orthonormalize(m *mat.Dense) {
	_, n := m.Dims()
	for j := range n {
		x := m.ColView(j).(*mat.VecDense)
		whole := mat.Norm(x, 2)
		for i := range j {
			before := m.ColView(i)
			x.AddScaledVec(x, -mat.Dot(before, x), before)
		}
		if left := mat.Norm(x, 2); left > 1e-6*whole {
			x.ScaleVec(1/left, x)
		} else {
			x.Zero()
		}
	}
}
