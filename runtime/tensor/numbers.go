package tensor

import "fmt"

// Loops over numbers are written twice: in Go, and for AVX2 in C, which a compiler of C vectorizes. Both have the same
// bits.

// Axpy adds a*x to t element by element; shapes must agree.
func (t *Tensor) Axpy(a float64, x *Tensor) { t.Blend(1, a, x) }

// Blend sets each element of t to keep*t + take*x, computed in float64; shapes must agree.
func (t *Tensor) Blend(keep, take float64, x *Tensor) {
	if len(t.Data) != len(x.Data) {
		panic(fmt.Sprintf("tensor.Blend: shapes %v and %v", t.Shape, x.Shape))
	}
	InParts(len(x.Data), func(from, to int) { blend(keep, t.Data[from:to], take, x.Data[from:to]) })
}

// Distance returns the largest difference of two tensors of one shape; not a number where an element is none.
func Distance(a, b *Tensor) float64 {
	d := a.Clone()
	d.Axpy(-1, b)
	return d.MaxAbs()
}

func blend(keep float64, y []float32, take float64, x []float32) {
	if vectors(len(y)) {
		blendVectors(keep, y, take, x)
		return
	}
	for i, v := range x {
		y[i] = float32(keep*float64(y[i]) + take*float64(v))
	}
}

// WeightedSum sets t to the sum of weights[k]*rows[k] over k, added up in float64 and in that order.
func (t *Tensor) WeightedSum(weights []float64, rows [][]float32) {
	InParts(len(t.Data), func(from, to int) {
		var sums [1 << 10]float64
		for ; from < to; from += len(sums) {
			sum := sums[:min(len(sums), to-from)]
			clear(sum)
			for k, x := range rows {
				add(sum, weights[k], x[from:from+len(sum)])
			}
			for i, v := range sum {
				t.Data[from+i] = float32(v)
			}
		}
	})
}

func add(sum []float64, weight float64, x []float32) {
	if vectors(len(sum)) {
		addVectors(sum, weight, x)
		return
	}
	for i, v := range x {
		sum[i] += weight * float64(v)
	}
}

// nonFinite returns the index of the first NaN or infinite element, or -1 if there is none.
func nonFinite(data []float32) int {
	if vectors(len(data)) && finiteVectors(data) {
		return -1
	}

	for i, v := range data {
		if v-v != 0 {
			return i
		}
	}

	return -1
}
