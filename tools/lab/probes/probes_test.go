package main

import (
	"math"
	"os"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

var cache string

func TestMain(m *testing.M) { datatest.Main(m, &cache) }

// 3 members and 2 others at (3, 1, 2) and (0, 2) form 6 pairs: 4 in order, one tie, one reversed.
func TestAUC(t *testing.T) {
	if got, want := auc([]float64{3, 1, 2}, []float64{0, 2}), 4.5/6; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, by hand %v", got, want)
	}
	if got := auc([]float64{1, 1}, []float64{1}); got != 0.5 {
		t.Errorf("of equal numbers %v", got)
	}
}

// The server's gradient of one image equals the engine's upload. The gradient of the objective equals finite
// differences. The upload of one image reveals the image's feature.
func TestInversion(t *testing.T) {
	os.Setenv("XDG_CACHE_HOME", cache)
	p, err := open(t.Context(), 12)
	goldentest.NoError(t, err)
	defer p.source.Close()
	var one, mean found
	goldentest.NoError(t, p.invert(t.Context(), protections[0], 1, 1, &one))
	goldentest.NoError(t, p.invert(t.Context(), protection{blind: true}, 1, 1, &mean))
	if one.images != 2 || one.cosine < 1.95 || one.right != 2 || mean.cosine > one.cosine-0.01 {
		t.Errorf("reconstructed %+v; by class means %+v", one, mean)
	}
	v, err := p.victim(t.Context(), 1, tensor.Map{"ctx": method.Draw(1, -1, "ctx", []int{4, 96}, 0.02)})
	goldentest.NoError(t, err)
	r := method.Rand(1)
	u, g := make([]float64, 2*v.dim), make([]float64, 4*96)
	for i := range u {
		u[i] = r.NormFloat64()
	}
	for i := range g {
		g[i] = r.NormFloat64()
	}
	labels, grad := []int64{1, 3}, make([]float64, len(u))
	v.objective(u, g, labels, grad)
	for _, i := range []int{0, 5, v.dim, 2*v.dim - 1} {
		const h = 1e-5
		up, down := append([]float64{}, u...), append([]float64{}, u...)
		up[i], down[i] = up[i]+h, down[i]-h
		want := (v.objective(up, g, labels, nil) - v.objective(down, g, labels, nil)) / (2 * h)
		if math.Abs(grad[i]-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("slope %d is %v, by finite differences %v", i, grad[i], want)
		}
	}
}
