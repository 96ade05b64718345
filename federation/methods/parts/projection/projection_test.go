package projection

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// TestProjectorLaws: Q is symmetric, Q Q = Q, its trace is the number of kept columns, and Apply agrees with Dense, for
// full-rank, rank-deficient, tied and zero prompts.
func TestProjectorLaws(t *testing.T) {
	low := lcg(3, 6, 20)
	copy(low.Data[60:], low.Data[:60])
	tied := tensor.New(6, 20)
	for i := range 6 {
		tied.Data[i*20+i] = -2
	}
	prompts := map[string]*tensor.Tensor{"full": lcg(3, 6, 20), "low": low, "tied": tied, "zero": tensor.New(6, 20),
		"tall": lcg(3, 30, 20), "one": lcg(3, 1, 1)}
	ranks := map[string]int{"full": 6, "low": 3, "tied": 6, "zero": 0, "tall": 20, "one": 1}
	for name, p := range prompts {
		for _, kind := range Kinds() {
			for _, rho := range []float64{0, .3, .8, 1} {
				t.Run(fmt.Sprintf("%s-%s-%v", name, kind, rho), func(t *testing.T) {
					q := project(t, p, kind, rho)
					if q.Rank != ranks[name] {
						t.Errorf("rank %d, want %d", q.Rank, ranks[name])
					}
					checkLaws(t, q)
				})
			}
		}
	}
}

// TestProjectColumns: the kept columns of a kind span its projector's range, and the others the complement.
func TestProjectColumns(t *testing.T) {
	p := lcg(5, 4, 11)
	between := func(lo, hi int) (*Projection, error) {
		return ProjectColumns(p, func(int) (int, int) { return lo, hi })
	}
	for _, kind := range Kinds() {
		want := project(t, p, kind, 0.6)
		got, err := between(want.Lo, want.Hi)
		goldentest.NoError(t, err)
		checkLaws(t, got)
		sum := got.Dense()
		if !slices.Equal(sum.Data, want.Dense().Data) {
			t.Errorf("%s: columns %d to %d give another projector", kind, want.Lo, want.Hi)
		}
		for _, part := range [][2]int{{0, want.Lo}, {want.Hi, 11}} {
			rest, err := between(part[0], part[1])
			goldentest.NoError(t, err)
			sum.Axpy(1, rest.Dense())
		}
		for i, v := range sum.Data {
			if one := i/11 == i%11; math.Abs(float64(v)-map[bool]float64{true: 1}[one]) > 1e-6 {
				t.Fatalf("%s: all columns give %g at %d,%d of the identity", kind, v, i/11, i%11)
			}
		}
	}
}

// project returns the projector of a kind, which must exist.
func project(t testing.TB, p *tensor.Tensor, kind string, rho float64) *Projection {
	t.Helper()
	q, err := Project(p, kind, rho)
	goldentest.NoError(t, err)
	return q
}

func checkLaws(t *testing.T, q *Projection) {
	t.Helper()
	d := q.factors.d
	m := denseOf(t, q.Dense())
	var square mat.Dense
	square.Mul(m, m)
	square.Sub(&square, m)
	if e := mat.Max(&square) - mat.Min(&square); e > 2e-6 {
		t.Errorf("Q Q differs from Q by %g", e)
	}
	if e := math.Abs(mat.Trace(m) - float64(q.Kept())); e > 1e-5 {
		t.Errorf("trace %g, kept %d", mat.Trace(m), q.Kept())
	}
	x := lcg(17, 3, d)
	y, err := q.Apply(x)
	goldentest.NoError(t, err)
	var want mat.Dense
	want.Mul(denseOf(t, x), m)
	y.Axpy(-1, toTensor(want.RawMatrix()))
	if y.MaxAbs() > 2e-6 {
		t.Errorf("Apply differs from Dense by %g", y.MaxAbs())
	}
}

// TestDirections by hand: p has singular directions e2 (3), e0 (2), e1 (1) in width 5.
func TestDirections(t *testing.T) {
	p := tensor.Of([]float32{2, 0, 0, 0, 0 /**/, 0, -1, 0, 0, 0 /**/, 0, 0, 3, 0, 0}, 3, 5)
	for _, c := range []struct {
		kind      string
		rho       float64
		diag      []float32
		arbitrary bool
	}{
		{Code, 1, []float32{1, 1, 1, 0, 0}, false},       // all three
		{Code, .5, []float32{1, 1, 0, 0, 0}, false},      // int(1.5) = 1 dropped
		{Code, .2, []float32{0, 1, 0, 0, 0}, false},      // int(2.4) = 2 dropped
		{Eq9, .2, []float32{1, 1, 0, 1, 1}, false},       // floor(.8*5) = 4 kept
		{Eq9, .4, []float32{0, 1, 0, 1, 1}, false},       // 3 kept
		{Eq9, .6, []float32{0, 0, 0, 1, 1}, false},       // 2 kept: the whole null space
		{Eq9, .8, nil, true},                             // 1 kept: the null direction is undetermined
		{Eq9, 1, []float32{0, 0, 0, 0, 0}, false},        // none
		{Alg1, .6, []float32{0, 1, 0, 1, 1}, false},      // V[:, 2:]
		{Def1, .5, []float32{0, 1, 0, 1, 1}, false},      // 5 - floor(2.5) = 3
		{ExactNull, .8, []float32{0, 0, 0, 1, 1}, false}, // min(3, 4) removed
		{ExactNull, .3, []float32{0, 1, 0, 1, 1}, false}, // min(3, 5 - floor(3.5)) = 2 removed
	} {
		q := project(t, p, c.kind, c.rho)
		if q.Arbitrary != c.arbitrary {
			t.Errorf("%s %v: arbitrary %v", c.kind, c.rho, q.Arbitrary)
		}
		for at, got := range q.Dense().Data[:5*len(c.diag)] {
			want, row, column := float32(0), at/5, at%5
			if row == column {
				want = c.diag[row]
			}
			if math.Abs(float64(got-want)) > 1e-7 {
				t.Errorf("%s %v: Q[%d,%d] = %v, want %v", c.kind, c.rho, row, column, got, want)
			}
		}
	}
}

// TestCompletion: [V_r | C] is orthonormal and C is orthogonal to every row of p.
func TestCompletion(t *testing.T) {
	low := lcg(3, 6, 20)
	copy(low.Data[60:], low.Data[:60])
	for name, p := range map[string]*tensor.Tensor{"full": lcg(3, 6, 20), "low": low, "zero": tensor.New(2, 20),
		"square": lcg(3, 20, 20)} {
		q := project(t, p, Eq9, .9)
		if q.Rank == 20 {
			continue // nothing is left to complete
		}
		m := mat.NewDense(20, 20-q.Rank, nil)
		m.Copy(columnsOfH(q.factors).Slice(0, 20, q.Rank, 20))
		var gram, rows mat.Dense
		gram.Mul(m.T(), m)
		rows.Mul(denseOf(t, p), m)
		for i := range 20 - q.Rank {
			gram.Set(i, i, gram.At(i, i)-1)
		}
		if e := mat.Norm(&gram, 2); e > 1e-6 {
			t.Errorf("%s: completion is orthonormal to %g only", name, e)
		}
		if e := mat.Norm(&rows, 2); e > 1e-6 {
			t.Errorf("%s: completion meets the prompt's rows by %g", name, e)
		}
	}
}

func TestSameBytesForAnyThreads(t *testing.T) {
	p := lcg(3, 16, 512)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, kind := range Kinds() {
		o := OfPrompt{Projector: kind, Ratio: .8, Gradient: "through"}
		var first []*tensor.Tensor
		for _, n := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(n)
			packed, vjp, err := o.Factors(p)
			goldentest.NoError(t, err)
			dp, err := vjp(lcg(5, packed.Len()))
			goldentest.NoError(t, err)
			if first == nil {
				first = append(dp, packed)
				continue
			}
			if !slices.Equal(packed.Data, first[1].Data) || !slices.Equal(dp[0].Data, first[0].Data) {
				t.Errorf("%s: %d threads change the result", kind, n)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	bad := lcg(3, 4, 6)
	bad.Data[8] = float32(math.NaN())
	inf := lcg(3, 4, 6)
	inf.Data[0] = float32(math.Inf(-1))
	for _, c := range []struct {
		p    *tensor.Tensor
		kind string
		rho  float64
		says string
	}{
		{bad, Code, .5, "row 1, column 2"}, {inf, ExactNull, .5, "row 0, column 0"},
		{lcg(3, 4, 6), "eq10", .5, "alg1, code, def1, eq9, exact-null"},
		{lcg(3, 4, 6), Eq9, 1.5, "[0,1]"}, {lcg(3, 4, 6), Eq9, math.NaN(), "[0,1]"},
	} {
		_, err := Project(c.p, c.kind, c.rho)
		goldentest.WantErrorOf(t, fmt.Sprint(c.kind, " ", c.rho), err, c.says)
	}
}

// columnsOfH returns H [d,d].
func columnsOfH(f *factors) *mat.Dense {
	h := unit(f.d, f.d)
	f.h.times(h, blas.NoTrans)
	return dense64(h)
}

func dense64(a blas64.General) *mat.Dense {
	if a.Rows == 0 || a.Cols == 0 {
		return &mat.Dense{}
	}
	var m mat.Dense
	m.SetRawMatrix(a)
	return mat.DenseCopyOf(&m)
}

// The factors of a prompt multiply to it, whatever its rank, the columns of H are orthonormal, and the singular values
// are those of the prompt. A prompt of zeros has rank 0.
func TestDecompose(t *testing.T) {
	low := []float64{3, 1, -2, 0.5, -6, -2, 4, -1, 0, 2, 1, 1}
	near := []float64{1, 2, 3, 1, 2.001, 3, 1, 2, 3.0001} // the squares of the last two values are tiny
	for _, c := range []struct {
		rows, rank int
		data       []float64
	}{{2, 2, []float64{3, 1, -2, 0.5, -2, 1}}, {2, 2, []float64{-3, 1, -2, 0.5, 2, 1}}, {3, 2, low},
		{4, 3, []float64{1, 2, 3, 2, 1, 3, 0, 1, 1, 4, 5, -1}}, {1, 1, []float64{-5}}, {3, 3, near}} {
		p := mat.NewDense(c.rows, len(c.data)/c.rows, c.data)
		f, err := decompose(clone(p.RawMatrix()))
		if err != nil || f.rank != c.rank {
			t.Fatalf("rank %d, %v", f.rank, err)
		}
		h := columnsOfH(f)
		var gram, back mat.Dense
		gram.Mul(h.T(), h)
		back.Mul(dense64(f.l), h.Slice(0, f.d, 0, f.rank).T())
		if !mat.EqualApprox(&gram, dense64(unit(f.d, f.d)), 1e-12) || !mat.EqualApprox(&back, p, 1e-12) {
			t.Errorf("%v from %v", back, p)
		}
		var svd mat.SVD
		if err := f.singularVectors(1, 2); err != nil || !svd.Factorize(p, mat.SVDNone) {
			t.Fatal(err)
		}
		for i, want := range svd.Values(nil)[:f.rank] {
			if math.Abs(f.s[i]-want) > 1e-9*want {
				t.Errorf("singular value %d is %g, want %g", i, f.s[i], want)
			}
		}
	}
	if f, err := decompose(zeros(2, 3)); err != nil || f.rank != 0 || f.h.y.Rows != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// fixed keeps the same columns of every prompt.
func fixed(lo, hi int) func(int) (int, int) { return func(int) (int, int) { return lo, hi } }

// Of a prompt along the first axis, at most its rank of one direction is removed. A cut between equal singular values
// has no derivative, and columns beyond the last are refused.
func TestProjectBehindByHand(t *testing.T) {
	p := tensor.Of([]float32{3, 0, 0}, 1, 3)
	for lo, first := range map[int]float32{0: 1, 1: 0, 2: 0} {
		q, err := ProjectColumns(p, func(rank int) (int, int) { return min(lo, rank), 3 })
		goldentest.NoError(t, err)
		d := q.Dense()
		for i, want := range []float32{first, 0, 0, 0, 1, 0, 0, 0, 1} {
			if math.Abs(float64(d.Data[i]-want)) > 1e-6 {
				t.Errorf("behind %d: %v", lo, d.Data)
				break
			}
		}
	}
	q, err := ProjectColumns(tensor.Of([]float32{2, 0, 0, 0, 2, 0}, 2, 3), fixed(1, 3))
	goldentest.NoError(t, err)
	_, err = q.vjpOf(tensor.New(3, 3))
	goldentest.WantError(t, err, "between equal singular values 1 and 2 (2) of the prompt")
	none, err := ProjectColumns(tensor.Of([]float32{2, 0, 0, 0, 2, 0}, 2, 3), fixed(1, 1))
	if err != nil || none.Arbitrary {
		t.Errorf("no column depends on a choice: %+v, %v", none, err)
	}
	// Of the prompt diag(2, 1) the first direction is kept: Q_12 changes by (pᵀ dp + dpᵀ p)_12 / (4-1).
	q, err = ProjectColumns(tensor.Of([]float32{2, 0, 0, 0, 1, 0}, 2, 3), fixed(0, 1))
	goldentest.NoError(t, err)
	dp, err := q.vjpOf(tensor.Of([]float32{0, 1, 0, 0, 0, 0, 0, 0, 0}, 3, 3))
	for i, want := range []float64{0, 2. / 3, 0, 1. / 3, 0, 0} {
		if err != nil || !(math.Abs(float64(dp.Data[i])-want) <= 1e-6) {
			t.Fatalf("%v, %v", dp, err)
		}
	}
}
