package projection

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/tensor"
)

// rows converts x, which must be [N,d].
func (q *Projection) rows(what string, x *tensor.Tensor) (*mat.Dense, error) {
	m, err := matrix(what, x)
	if err != nil {
		return nil, err
	}
	if _, c := m.Dims(); c != q.svd.d {
		return nil, fmt.Errorf("projection: the %s has shape %v, the projector width %d", what, x.Shape, q.svd.d)
	}
	return m, nil
}

// matrix converts a finite float tensor of rank 2 without empty dimensions.
func matrix(what string, x *tensor.Tensor) (*mat.Dense, error) {
	if x == nil {
		return nil, fmt.Errorf("projection: the %s is missing", what)
	}
	if len(x.Shape) != 2 || x.IsInt() || x.Shape[0] < 1 || x.Shape[1] < 1 || len(x.Data) != tensor.Size(x.Shape) {
		return nil, fmt.Errorf("projection: the %s is %v with %d values; it must be a float matrix", what, x, x.Len())
	}
	if i := x.NonFinite(); i >= 0 {
		return nil, fmt.Errorf("projection: the %s %v holds %v at row %d, column %d; it must be finite",
			what, x, x.Data[i], i/x.Shape[1], i%x.Shape[1])
	}
	m := mat.NewDense(x.Shape[0], x.Shape[1], nil)
	raw := m.RawMatrix().Data
	for i, v := range x.Data {
		raw[i] = float64(v)
	}
	return m, nil
}

func toTensor(m *mat.Dense) *tensor.Tensor {
	r, c := m.Dims()
	out := tensor.New(r, c)
	for i := range r {
		for j, v := range m.RawRowView(i) {
			out.Data[i*c+j] = float32(v)
		}
	}
	return out
}
