package linalg

import (
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/tensor"
)

func Matrix(t *tensor.Tensor) *mat.Dense {
	m := mat.NewDense(t.Shape[0], t.Shape[1], nil)
	for i, x := range t.Data {
		m.RawMatrix().Data[i] = float64(x)
	}
	return m
}

func Store(t *tensor.Tensor, m *mat.Dense) {
	for i, x := range m.RawMatrix().Data {
		t.Data[i] = float32(x)
	}
}

// orthonormal makes columns orthonormal, one after the other (modified Gram-Schmidt); those that the ones before them
// span become 0.
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
