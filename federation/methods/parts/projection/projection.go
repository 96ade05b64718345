package projection

import (
	"fmt"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/tensor"
)

// Projection is an orthogonal projector Q [d,d] built from a prompt p [T,d], in factored form. It is safe for
// concurrent use.
type Projection struct {
	// Kind is the rule that chose the kept columns; empty where the caller did.
	Kind string
	// Rank is the numerical rank of p: singular values above max(T,d) 2^-23 of the largest.
	Rank int
	// Lo and Hi bound the kept columns [Lo,Hi) of the completed V [d,d].
	Lo, Hi int
	// Arbitrary is set where p alone does not determine Q: the kept columns end inside the null space, whose basis was
	// completed by the rule of complete, or between two equal singular values. A trace then has to record Q.
	Arbitrary bool

	svd        *thinSVD
	basis      *mat.Dense // [d,k] orthonormal; nil when k is 0
	rowCols    int        // the leading columns of basis that are singular vectors; the rest completes the null space
	complement bool       // Q = I - B B^T instead of B B^T
	tie        int        // a cut between equal non-zero singular values falls before column tie; 0 for none
}

// Project decomposes the prompt p [T,d] and chooses what a kind (see Kinds) keeps for the ratio rho in [0,1].
// A rank-deficient or zero p is fine. A p that is not a finite float matrix is an error.
func Project(p *tensor.Tensor, kind string, rho float64) (*Projection, error) {
	if !(rho >= 0 && rho <= 1) {
		return nil, fmt.Errorf("projection: ratio rho is %v; it must lie in [0,1]", rho)
	}
	kept := columns[kind]
	if kept == nil {
		return nil, fmt.Errorf("projection: unknown projector %q; known: %s", kind, strings.Join(Kinds(), ", "))
	}
	q, err := ProjectColumns(p, func(rank int) (int, int) { return kept(rho, p.Shape[0], p.Shape[1], rank) })
	if err != nil {
		return nil, err
	}
	q.Kind = kind
	return q, nil
}

// ProjectColumns keeps columns [lo,hi) of the completed V [d,d] of the prompt p [T,d], which may depend on its rank. A
// lo of at most the rank and a hi of d do not depend on the choice of a basis of the null space.
func ProjectColumns(p *tensor.Tensor, of func(rank int) (lo, hi int)) (*Projection, error) {
	m, err := matrix("prompt", p)
	if err != nil {
		return nil, err
	}
	f, err := decompose(m)
	if err != nil {
		return nil, err
	}
	lo, hi := of(f.rank)
	if lo < 0 || lo > hi || hi > f.d {
		return nil, fmt.Errorf("projection: columns %d to %d of the %d right singular vectors of a prompt %v", lo, hi,
			f.d, p.Shape)
	}
	return f.keep(lo, hi), nil
}

// Projector returns Q [d,d] of Project; see Projection for the cheaper factored form.
func Projector(p *tensor.Tensor, kind string, rho float64) (*tensor.Tensor, error) {
	q, err := Project(p, kind, rho)
	if err != nil {
		return nil, err
	}
	return q.Dense(), nil
}

func (f *thinSVD) keep(lo, hi int) *Projection {
	d := f.d
	q := &Projection{Rank: f.rank, Lo: lo, Hi: hi, svd: f}
	cutsNull := false
	if lo < hi {
		for _, cut := range []int{lo, hi} {
			switch {
			case cut > f.rank && cut < d:
				cutsNull = true
			case cut > 0 && cut < f.rank && f.s[cut-1]-f.s[cut] <= tieEps*f.s[0]:
				q.tie = cut
			}
		}
	}
	q.Arbitrary = cutsNull || q.tie > 0
	q.complement = lo <= f.rank && hi == d && lo < hi
	if cutsNull {
		q.complement = hi-lo > d/2
	}
	q.setBasis()
	return q
}

// setBasis gathers the kept columns, or for a complement the removed ones: singular vectors first, completion after.
func (q *Projection) setBasis() {
	f := q.svd
	var rows, null []int
	for j := range f.d {
		if (j >= q.Lo && j < q.Hi) == q.complement {
			continue
		}
		if j < f.rank {
			rows = append(rows, j)
		} else {
			null = append(null, j-f.rank)
		}
	}
	q.rowCols = len(rows)
	if len(rows)+len(null) == 0 {
		return
	}
	q.basis = mat.NewDense(f.d, len(rows)+len(null), nil)
	for k, j := range rows {
		for i := range f.d {
			q.basis.Set(i, k, f.v.At(i, j))
		}
	}
	if len(null) > 0 {
		c := mat.NewDense(f.d, len(null), nil)
		f.complete(c, null)
		q.basis.Slice(0, f.d, len(rows), len(rows)+len(null)).(*mat.Dense).Copy(c)
	}
}

// Kept is the rank of Q.
func (q *Projection) Kept() int { return q.Hi - q.Lo }

// Factors returns B [d,k] with orthonormal columns, so that Q = B B^T, or Q = I - B B^T when complement is true.
// k may be 0: Q is then zero, or for a complement the identity.
func (q *Projection) Factors() (b *tensor.Tensor, complement bool) {
	if q.basis == nil {
		return tensor.New(q.svd.d, 0), q.complement
	}
	return toTensor(q.basis), q.complement
}

// Dense returns Q [d,d].
func (q *Projection) Dense() *tensor.Tensor {
	d := q.svd.d
	out := tensor.New(d, d)
	sym := blas64.Symmetric{N: d, Stride: d, Data: make([]float64, d*d), Uplo: blas.Upper}
	sign, diag := 1.0, 0.0
	if q.complement {
		sign, diag = -1, 1
	}
	if q.basis != nil {
		blas64.Syrk(blas.NoTrans, sign, q.basis.RawMatrix(), 0, sym)
	}
	for i := range d {
		sym.Data[i*d+i] += diag
		for j := i; j < d; j++ {
			x := float32(sym.Data[i*d+j])
			out.Data[i*d+j], out.Data[j*d+i] = x, x
		}
	}
	return out
}

// Apply returns x Q for x [N,d], without forming Q.
func (q *Projection) Apply(x *tensor.Tensor) (*tensor.Tensor, error) {
	m, err := q.rows("projected prompt", x)
	if err != nil {
		return nil, err
	}
	y := mat.NewDense(x.Shape[0], q.svd.d, nil)
	if q.complement {
		y.Copy(m)
	}
	if q.basis == nil {
		return toTensor(y), nil
	}
	sign := 1.0
	if q.complement {
		sign = -1
	}
	var c mat.Dense
	c.Mul(m, q.basis)
	blas64.Gemm(blas.NoTrans, blas.Trans, sign, c.RawMatrix(), q.basis.RawMatrix(), 1, y.RawMatrix())
	return toTensor(y), nil
}
