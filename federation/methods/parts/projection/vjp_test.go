package projection

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func denseOf(t *testing.T, x *tensor.Tensor) *mat.Dense {
	t.Helper()
	m, err := matrix("test", x)
	goldentest.NoError(t, err)
	return dense64(m)
}

// vjpOf returns the gradient [T,d] of <dq, Q(p)>, dq [d,d].
func vjpOf(p *tensor.Tensor, kind string, rho float64, dq *tensor.Tensor) (*tensor.Tensor, error) {
	q, err := Project(p, kind, rho)
	if err != nil {
		return nil, err
	}
	return q.vjpOf(dq)
}

func (q *Projection) vjpOf(dq *tensor.Tensor) (*tensor.Tensor, error) {
	g, err := matrix("gradient", dq)
	if err != nil {
		return nil, err
	}
	dp, err := q.vjp(q.coordinates(dense64(g)))
	return toTensor(dp), err
}

// coordinates returns what vjp reads for the gradient g [d,d] of Q.
func (q *Projection) coordinates(g *mat.Dense) blas64.General {
	h := columnsOfH(q.factors)
	var both, out mat.Dense
	both.Add(g, g.T())
	out.Product(h.T(), &both, h)
	return clone(rowsOf(out.RawMatrix(), 0, q.Rank))
}

func inner(a, b *mat.Dense) float64 {
	s := 0.0
	for i, x := range a.RawMatrix().Data {
		s += x * b.RawMatrix().Data[i]
	}
	return s
}

// transported returns the projector of p, near the base point, with a completion that moves minimally: the kept null
// columns of the base point are projected into the new null space and made orthonormal again by their polar factor.
func transported(t *testing.T, base *Projection, p *mat.Dense) *mat.Dense {
	t.Helper()
	var svd mat.SVD
	if !svd.Factorize(p, mat.SVDThin) {
		t.Fatal("no singular values")
	}
	var v, c mat.Dense
	svd.VTo(&v)
	d, _ := v.Dims()
	q := mat.NewDense(d, d, nil)
	add := func(b mat.Matrix) {
		var s mat.Dense
		s.Mul(b, b.T())
		q.Add(q, &s)
	}
	if base.Lo < base.Rank {
		add(v.Slice(0, d, base.Lo, min(base.Hi, base.Rank)))
	}
	if from := max(base.Lo, base.Rank); from < base.Hi {
		var inRows mat.Dense
		old := columnsOfH(base.factors).Slice(0, d, from, base.Hi)
		inRows.Product(&v, v.T(), old)
		c.Sub(old, &inRows)
		var svd mat.SVD
		if !svd.Factorize(&c, mat.SVDThin) {
			t.Fatal("no polar factor")
		}
		var u mat.Dense
		svd.UTo(&u)
		add(&u)
	}
	return q
}

// TestVJPFiniteDifferences compares the derivative along random directions with central differences in float64, for
// every kind, with and without a cut inside the null space.
func TestVJPFiniteDifferences(t *testing.T) {
	for _, shape := range [][2]int{{6, 20}, {1, 7}, {9, 5}, {5, 5}} {
		for _, kind := range Kinds() {
			for _, rho := range []float64{.1, .5, .8} {
				t.Run(fmt.Sprintf("%s-%v-%v", kind, rho, shape), func(t *testing.T) {
					rows, d := shape[0], shape[1]
					g, p := denseOf(t, lcg(5, d, d)), lcg(3, rows, d)
					q := project(t, p, kind, rho)
					dp, err := q.vjp(q.coordinates(g))
					goldentest.NoError(t, err)
					for seed := range uint64(3) {
						dir := denseOf(t, lcg(20+seed, rows, d))
						const h = 1e-5
						at := func(step float64) float64 {
							var x mat.Dense
							x.Scale(step, dir)
							x.Add(&x, denseOf(t, p))
							return inner(g, transported(t, q, &x))
						}
						want := (at(h) - at(-h)) / (2 * h)
						got := inner(dense64(dp), dir)
						if !(math.Abs(got-want) < 1e-6*(1+math.Abs(want))) {
							t.Errorf("direction %d: %.9g, finite differences give %.9g", seed, got, want)
						}
					}
				})
			}
		}
	}
}

// TestVJPDegenerate: a zero prompt has gradient zero, a rank-deficient one a finite gradient (PyTorch: NaN and 7e15),
// and a cut between equal singular values is an error.
func TestVJPDegenerate(t *testing.T) {
	g := lcg(5, 20, 20)
	low := lcg(3, 6, 20)
	copy(low.Data[60:], low.Data[:60])
	for _, kind := range Kinds() {
		dp, err := vjpOf(tensor.New(6, 20), kind, .5, g)
		if err != nil || dp.MaxAbs() != 0 {
			t.Errorf("%s of a zero prompt: gradient up to %v, error %v", kind, dp.MaxAbs(), err)
		}
		dp, err = vjpOf(low, kind, .5, g)
		if err != nil || dp.NonFinite() >= 0 || dp.MaxAbs() > 100 {
			t.Errorf("%s of a prompt of rank 3: gradient up to %v, error %v", kind, dp.MaxAbs(), err)
		}
	}
	equal := tensor.New(4, 20)
	for i := range 4 {
		equal.Data[i*20+i] = 1
	}
	if _, err := vjpOf(equal, Code, .5, g); err == nil {
		t.Error("a cut between equal singular values has no derivative, but none was refused")
	}
	if _, err := vjpOf(equal, ExactNull, .8, g); err != nil {
		t.Errorf("removing all equal singular values has a derivative: %v", err)
	}
}
