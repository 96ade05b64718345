package embedding

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Basis is the first two principal components of a set of rows.
type Basis struct {
	Mean      []float64    // [D]
	Axes      [2][]float64 // [D] each, of length 1; the largest entry in magnitude is positive
	Explained [2]float64   // shares of the variance
}

// PrincipalComponents computes the components of rows [N, D], with N at least 2.
func PrincipalComponents(rows [][]float64) (*Basis, error) {
	width, err := check(rows, 100_000)
	if err != nil {
		return nil, err
	}

	if len(rows) < 2 {
		return nil, fmt.Errorf("one row has no principal components: give at least 2")
	}

	matrix := mat.NewDense(len(rows), width, nil)
	for i, r := range rows {
		matrix.SetRow(i, r)
	}

	basis := &Basis{Mean: make([]float64, width)}
	for j := range basis.Mean {
		basis.Mean[j] = stat.Mean(mat.Col(nil, j, matrix), nil)
	}

	var pc stat.PC
	if !pc.PrincipalComponents(matrix, nil) {
		return nil, fmt.Errorf("the singular value decomposition did not converge")
	}

	var vectors mat.Dense
	pc.VectorsTo(&vectors)
	vars := pc.VarsTo(nil)
	total := floats.Sum(vars)
	_, found := vectors.Dims()
	for k := range basis.Axes {
		basis.Axes[k] = make([]float64, width)
		if k < found {
			mat.Col(basis.Axes[k], k, &vectors)
			fixSign(basis.Axes[k])
			if total > 0 {
				basis.Explained[k] = vars[k] / total
			}
		}
	}

	return basis, nil
}

// fixSign flips a direction so that its largest entry in magnitude is positive, because decompositions leave the sign
// open. Entries that differ only by rounding count as equal, and the first of them decides.
func fixSign(v []float64) {
	largest := math.Max(floats.Max(v), -floats.Min(v))
	for _, x := range v {
		if math.Abs(x) >= largest*(1-1e-9) {
			if x < 0 {
				floats.Scale(-1, v)
			}
			return
		}
	}
}

// Project projects a row [D] to the plane of the two components.
func (b *Basis) Project(row []float64) ([2]float64, error) {
	if len(row) != len(b.Mean) {
		return [2]float64{}, fmt.Errorf("a row of %d numbers in a basis of %d", len(row), len(b.Mean))
	}

	var out [2]float64
	for k, axis := range b.Axes {
		for j, v := range row {
			out[k] += (v - b.Mean[j]) * axis[j]
		}
	}

	return out, nil
}
