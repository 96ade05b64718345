package projection

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas64"

	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// matrix converts a finite float tensor of rank 2 without empty dimensions.
func matrix(what string, input *tensor.Tensor) (blas64.General, error) {
	if input == nil {
		return blas64.General{}, fmt.Errorf("projection: the %s is missing", what)
	}

	if len(input.Shape) != 2 || input.IsInt() || input.Shape[0] < 1 || input.Shape[1] < 1 ||
		len(input.Data) != tensor.Size(input.Shape) {
		return blas64.General{}, fmt.Errorf("projection: the %s is %v with %d values; it must be a float matrix", what,
			input, input.Len())
	}

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
