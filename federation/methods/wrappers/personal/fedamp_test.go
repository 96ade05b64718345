package personal

import (
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

func points(values ...float32) (out []tensor.Map) {
	for _, v := range values {
		out = append(out, tensor.Map{"ctx": tensor.Of([]float32{v}, 1, 1)})
	}
	return out
}

func TestFedAMPWeights(t *testing.T) {
	sum := func(row []float64) (s float64) {
		for _, v := range row {
			s += v
		}
		return s
	}
	for _, c := range []struct {
		amp  FedAMP
		at   []float32
		want []float64 // of the first client
	}{
		{FedAMP{}, []float32{3}, []float64{1}},
		// All equal: 1/4 for each.
		{FedAMP{}, []float32{2, 2, 2, 2}, []float64{.25, .25, .25, .25}},
		// By the formula: exp(-1/2)/2 with sigma 2 and a distance of 1.
		{FedAMP{Sigma: 2}, []float32{0, 1}, []float64{1 - 0.5*math.Exp(-0.5), 0.5 * math.Exp(-0.5)}},
		// Two distant groups have no weight for each other.
		{FedAMP{Sigma: 1}, []float32{0, 0, 50, 50}, []float64{.75, .25, 0, 0}},
	} {
		x := c.amp.weights(points(c.at...))
		for i, row := range x {
			if math.Abs(sum(row)-1) > 1e-12 {
				t.Errorf("%+v: the weights of client %d sum up to %v", c.amp, i, sum(row))
			}
		}
		for j, want := range c.want {
			if math.Abs(x[0][j]-want) > 1e-12 {
				t.Errorf("%+v of %v: weight %d is %v, want %v", c.amp, c.at, j, x[0][j], want)
			}
		}
	}
	// Clients in another order have their weights in that order.
	a := FedAMP{}.weights(points(0, 1, 5))
	b := FedAMP{}.weights(points(5, 0, 1))
	for i := range 3 {
		for j := range 3 {
			if a[i][j] != b[(i+1)%3][(j+1)%3] {
				t.Errorf("weight %d %d changes with the order", i, j)
			}
		}
	}
}
