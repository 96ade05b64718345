package optimaltransport

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"promptfed/runtime/tensor"
)

// Sinkhorn returns the plan [N][C] between N rows of mass 1/N and columns of the given masses that maximises
// Σ plan · (score - eps log plan), by iterations until no row's mass was off by more than a millionth of it. Columns
// have their masses exactly.
//
// Each fiftieth iteration is one of logarithms, whatever the range; those between multiply the plan that it left.
func Sinkhorn(scores *tensor.Tensor, masses []float64, eps float64, iters int) [][]float64 {
	n, classes := scores.Shape[0], scores.Shape[1]
	kernel := kernel{u: make([]float64, n), v: make([]float64, classes), masses: masses}
	for i := range n {
		row := make([]float64, classes)
		for c, x := range scores.Row(i).Data {
			row[c] = float64(x) / eps
		}
		kernel.scores = append(kernel.scores, row)
	}

	for done := 0; done < iters; {
		off := kernel.logarithms()
		done++
		if off > 1e-6 {
			steps := 0
			steps, off = kernel.multiply(min(49, iters-done))
			done += steps
		}
		if off <= 1e-6 {
			break
		}
	}

	return kernel.plan()
}

// kernel holds the plan e^(scores + u + v).
type kernel struct {
	scores       [][]float64
	u, v, masses []float64
}

func (k kernel) plan() [][]float64 {
	out := make([][]float64, len(k.u))
	for i, row := range k.scores {
		out[i] = make([]float64, len(row))
		for c, x := range row {
			out[i][c] = math.Exp(x + k.u[i] + k.v[c])
		}
	}

	return out
}

// logarithms makes one iteration and returns the largest relative error of a row's mass.
func (k kernel) logarithms() (off float64) {
	column := make([]float64, len(k.u))
	for i, row := range k.scores {
		sum := slices.Clone(row)
		for c := range sum {
			sum[c] += k.v[c]
		}
		now := -math.Log(float64(len(k.u))) - floats.LogSumExp(sum)
		off = max(off, math.Abs(math.Expm1(k.u[i]-now)))
		k.u[i] = now
	}

	for c := range k.v {
		for i, row := range k.scores {
			column[i] = row[c] + k.u[i]
		}
		k.v[c] = math.Log(k.masses[c]) - floats.LogSumExp(column)
	}

	return off
}

// multiply makes at most that many iterations, until numbers leave the range of float64 or every row's mass is right to
// a millionth. It returns the number of iterations and the largest relative error of a row's mass.
func (k kernel) multiply(most int) (steps int, off float64) {
	plan := k.plan()
	rowScale, columnScale := slices.Repeat([]float64{1}, len(k.u)), slices.Repeat([]float64{1}, len(k.v))
	for off = math.Inf(1); steps < most && off > 1e-6; steps++ {
		now := 0.0
		nextA, sums := make([]float64, len(rowScale)), make([]float64, len(columnScale))
		for i, row := range plan {
			sum := 0.0
			for c, x := range row {
				sum += x * columnScale[c]
			}
			nextA[i] = 1 / (sum * float64(len(rowScale)))
			now = max(now, math.Abs(rowScale[i]/nextA[i]-1))
			for c, x := range row {
				sums[c] += x * nextA[i]
			}
		}

		nextB := make([]float64, len(columnScale))
		for c, sum := range sums {
			if k.masses[c] > 0 {
				nextB[c] = k.masses[c] / sum
			}
		}

		if !ordinary(nextA) || !ordinary(nextB) {
			break
		}

		rowScale, columnScale, off = nextA, nextB, now
	}

	for i, x := range rowScale {
		k.u[i] += math.Log(x)
	}

	for c, x := range columnScale {
		if k.masses[c] > 0 {
			k.v[c] += math.Log(x)
		}
	}

	return steps, off
}

// ordinary reports whether products with the numbers of a plan stay within the range of float64.
func ordinary(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v != 0 && !(v > 1e-130 && v < 1e130) })
}
