package projection

import "promptfed/runtime/tensor"

// PackedFactors is the factored form of Projector as one tensor [d+1,k], k > 0: B [d,k] above a row of ones where Q = I
// - B Bᵀ, or of zeros where Q = B Bᵀ.
func PackedFactors(p *tensor.Tensor, kind string, rho float64) (*tensor.Tensor, error) {
	q, err := Project(p, kind, rho)
	if err != nil {
		return nil, err
	}
	b, complement := q.Factors()
	d, k := b.Shape[0], max(1, b.Shape[1])
	out := tensor.New(d+1, k)
	copy(out.Data, b.Data)
	if complement {
		for j := range k {
			out.Data[d*k+j] = 1
		}
	}
	return out, nil
}

// UnpackDense is Q [d,d] of PackedFactors.
func UnpackDense(packed *tensor.Tensor) *tensor.Tensor {
	d, k := packed.Shape[0]-1, packed.Shape[1]
	out := tensor.New(d, d)
	rest := float64(packed.Data[d*k])
	for i := range d {
		for j := range d {
			sum := 0.0
			for c := range k {
				sum += float64(packed.Data[i*k+c]) * float64(packed.Data[j*k+c])
			}
			if rest == 1 {
				sum = -sum
			}
			if i == j {
				sum += rest
			}
			out.Data[i*d+j] = float32(sum)
		}
	}
	return out
}
