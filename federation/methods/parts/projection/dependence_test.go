package projection_test

import (
	"math/rand/v2"
	"testing"

	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// drawnPrompt returns a prompt [16,512] drawn like the methods' initial prompts, normal with standard deviation 0.02.
func drawnPrompt(seed uint64) *tensor.Tensor {
	p, r := tensor.New(16, 512), rand.New(rand.NewPCG(seed, 1))
	for i := range p.Data {
		p.Data[i] = float32(0.02 * r.NormFloat64())
	}
	return p
}

// overlap returns tr(AB)/k of two orthogonal projectors of rank k, or of their complements: 1 for the same subspace,
// k/512 in the mean over unrelated subspaces.
func overlap(a, b *tensor.Tensor, removed bool) float64 {
	trace, rank := 0.0, 0.0
	for i := range 512 {
		for j := range 512 {
			x, y := float64(a.Data[i*512+j]), float64(b.Data[j*512+i])
			if removed {
				x, y = -x, -y
				if i == j {
					x, y = 1+x, 1+y
				}
			}
			trace += x * y
			if i == j {
				rank += x
			}
		}
	}
	return trace / rank
}

// FedPHA's eq. 9 keeps, for T 16 tokens of width 512 at rho 0.8, directions that hardly depend on the prompt, so it is
// not the default: 102 of the 496 null directions, as Householder reflectors complete them. 0.90 and 94.8 % were
// measured with torch.projection.svd(full_matrices=True), which calls the same LAPACK. By chance the overlap would be
// 102/512 = 0.20, and the last 102 channels would hold as much. exact-null removes the prompt's own row space and
// nothing else: the row spaces of two unrelated prompts overlap by 16/512 = 0.03.
func TestDependenceOnThePrompt(t *testing.T) {
	near := func(what string, got, want, tol float64) {
		if d := got - want; d > tol || d < -tol {
			t.Errorf("%s is %.3f, expected %.3f", what, got, want)
		}
	}
	p, other := drawnPrompt(1), drawnPrompt(2)
	build := func(kind string, p *tensor.Tensor) *tensor.Tensor {
		q, err := projection.Project(p, kind, 0.8)
		goldentest.NoError(t, err)
		return q.Dense()
	}
	a, b := build(projection.Eq9, p), build(projection.Eq9, other)
	near("eq9: the overlap of what is kept", overlap(a, b, false), 0.90, 0.01)
	last := 0.0
	for i := 512 - 102; i < 512; i++ {
		last += float64(a.Data[i*512+i]) / 102
	}
	near("eq9: the share of the last 102 channels", last, 0.948, 0.01)

	a, b = build(projection.ExactNull, p), build(projection.ExactNull, other)
	near("exact-null: the overlap of what is removed", overlap(a, b, true), 16./512, 0.01)
	for _, c := range []struct {
		what string
		p    *tensor.Tensor
		left float64 // the remaining share of the length of a prompt's rows
	}{{"the prompt itself", p, 0}, {"another prompt", other, 0.984}} { // √(1-16/512)
		q, err := projection.Project(p, projection.ExactNull, 0.8)
		goldentest.NoError(t, err)
		x, err := q.Apply(c.p)
		goldentest.NoError(t, err)
		near("exact-null: what is left of "+c.what, x.Norm()/c.p.Norm(), c.left, 0.005)
	}
}
