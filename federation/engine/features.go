package engine

import (
	"math/rand/v2"

	"promptfed/runtime/tensor"
)

// Features are examples as unit rows of one backbone: the plain kind of method.Data.
type Features struct {
	Views   []*tensor.Tensor // image features [N,D], one per augmented view; a batch draws a view for each row
	Patches *tensor.Tensor   // [N,M,D], or nil
	Class   []int64          // [N]
}

func (f *Features) Len() int        { return len(f.Class) }
func (f *Features) Labels() []int64 { return f.Class }

// Order is a random permutation.
func (f *Features) Order(r *rand.Rand) []int { return r.Perm(len(f.Class)) }

func (f *Features) Batch(rows []int, r *rand.Rand) (tensor.Map, error) {
	image := f.Views[0].Rows(rows)
	if len(f.Views) > 1 {
		for i, row := range rows {
			copy(image.Row(i).Data, f.Views[r.IntN(len(f.Views))].Row(row).Data)
		}
	}
	label := make([]int64, len(rows))
	for i, row := range rows {
		label[i] = f.Class[row]
	}
	m := tensor.Map{"image": image, "label": tensor.OfInts(label, len(rows))}
	if f.Patches != nil {
		m["patches"] = f.Patches.Rows(rows)
	}
	return m, nil
}
