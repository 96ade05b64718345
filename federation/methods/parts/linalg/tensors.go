package linalg

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"promptfed/runtime/tensor"
)

// Bytes encodes named sums and further numbers; other sums or numbers have other bytes.
func Bytes(sums map[string][]float64, also ...float64) []byte {
	var encoded []byte
	put := func(values []float64) {
		encoded = binary.LittleEndian.AppendUint64(encoded, uint64(len(values)))
		for _, v := range values {
			encoded = binary.LittleEndian.AppendUint64(encoded, math.Float64bits(v))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(sums)) {
		encoded = append(encoded, name...)
		put(sums[name])
	}

	put(also)
	return encoded
}

// AddRow adds a row, times a weight, to a sum.
func AddRow(sum []float64, row *tensor.Tensor, weight float64) {
	for j, v := range row.Data {
		sum[j] += weight * float64(v)
	}
}

// DivideRows sets the rows of mean [C,D] to sums over counts, where these are not 0.
func DivideRows(mean *tensor.Tensor, sums []float64, counts []float32) {
	dim := mean.Shape[1]
	for c, n := range counts {
		for j := range dim {
			if n > 0 {
				mean.Data[c*dim+j] = float32(sums[c*dim+j] / float64(n))
			}
		}
	}
}

// Median returns the median of sorted values.
func Median(v []float64) float64 { return Mean(v[(len(v)-1)/2 : len(v)/2+1]) }

// Mean returns the mean of values.
func Mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// SquaredDistances returns the squared distances of every two of a list, over all tensors together.
func SquaredDistances(list []tensor.Map) [][]float64 {
	far := make([][]float64, len(list))
	for i := range far {
		far[i] = make([]float64, len(list))
		for j := range i {
			d := Distance(list[i], list[j])
			far[i][j], far[j][i] = d*d, d*d
		}
	}

	return far
}

// Distance returns the norm of a - b, over all tensors together.
func Distance(a, b tensor.Map) float64 {
	sum := 0.0
	for _, name := range a.Names() {
		for i, v := range a[name].Data {
			d := float64(v) - float64(b[name].Data[i])
			sum += d * d
		}
	}

	return math.Sqrt(sum)
}

// Elementwise returns f of the elements of two tensors of one shape.
func Elementwise(a, b *tensor.Tensor, f func(a, b float64) float64) *tensor.Tensor {
	out := tensor.New(a.Shape...)
	for i := range out.Data {
		out.Data[i] = float32(f(float64(a.Data[i]), float64(b.Data[i])))
	}
	return out
}

// Scale multiplies in place.
func Scale(t *tensor.Tensor, a float64) *tensor.Tensor {
	for i, v := range t.Data {
		t.Data[i] = float32(float64(v) * a)
	}
	return t
}
