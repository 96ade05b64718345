package aggregate

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/tensor"
)

// ClassMeans returns the means [C,D] of rows by class, and their numbers [C,1]. row returns the row of an example of a
// class, or nil for none.
func ClassMeans(labels []int64, classes, dim int, row func(example, class int) *tensor.Tensor) (mean,
	count *tensor.Tensor) {
	mean, count = tensor.New(classes, dim), tensor.New(classes, 1)
	sums := make([]float64, classes*dim)
	for i, y := range labels {
		if x := row(i, int(y)); x != nil {
			count.Data[y]++
			linalg.AddRow(sums[int(y)*dim:], x, 1)
		}
	}

	linalg.DivideRows(mean, sums, count.Data)
	return mean, count
}

// RenewClassMeans sets the rows of mean [C,D], and their counts [C,1], of the classes that some upload has examples
// of: to the mean of the uploads' rows, by examples or, uniform, one client as much as another. Other classes stay as
// they are.
func RenewClassMeans(mean, count *tensor.Tensor, ups []method.Upload, meanName, nName string, uniform bool) error {
	dim := mean.Shape[1]
	sums, weights, counts := make([]float64, mean.Len()), make([]float32, count.Len()), make([]float32, count.Len())
	for _, u := range ups {
		rows, err := Extra(u, meanName, mean.Shape...)
		if err != nil {
			return err
		}

		examples, err := Extra(u, nName, count.Shape...)
		if err != nil {
			return err
		}

		for c, weight := range examples.Data {
			if weight <= 0 {
				continue
			}
			counts[c] += weight
			if uniform {
				weight = 1
			}
			weights[c] += weight
			linalg.AddRow(sums[c*dim:], rows.Row(c), float64(weight))
		}
	}

	linalg.DivideRows(mean, sums, weights)
	for c, v := range counts {
		if v > 0 {
			count.Data[c] = v
		}
	}

	return nil
}
