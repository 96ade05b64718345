package calibration

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// measure returns a client's answer: n [C,1], mean [C,D], and cov or factors of its features [N,D] of each class.
func (m GGTPC) measure(features *tensor.Tensor, class []int64, classes int) (tensor.Map, error) {
	d := features.Shape[1]
	counts, mean := tensor.New(classes, 1), tensor.New(classes, d)
	out := tensor.Map{"n": counts, "mean": mean}
	if m.Stats == "packed" {
		out["cov"] = tensor.New(classes, d*(d+1)/2)
	} else {
		out["factors"] = tensor.New(0, d)
	}

	for c := range classes {
		rows := centred(features, class, int64(c), max(m.MinCount, 1), mean.Row(c).Data)
		if rows == nil {
			continue
		}
		count, _ := rows.Dims()
		counts.Data[c] = float32(count)
		rows.Scale(1/math.Sqrt(float64(count)), rows)
		if m.Stats == "packed" {
			pack(rows, out["cov"].Row(c).Data)
		} else if err := m.factor(rows, out["factors"]); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// answer declares the tensors of measure.
func (m GGTPC) answer(t method.ClientSpec) []method.Extra {
	c, d := t.Classes, t.Dim
	out := []method.Extra{{Name: "n", Shape: []int{c, 1}, Counts: true}, {Name: "mean", Shape: []int{c, d}}}
	if m.Stats == "packed" {
		return append(out, method.Extra{Name: "cov", Shape: []int{c, d * (d + 1) / 2}})
	}
	return append(out, method.Extra{Name: "factors", Shape: []int{-c * min(m.Rank, d), d}})
}

// centred returns the rows of a class minus their mean, which it stores in mean; nil for fewer rows than least.
func centred(features *tensor.Tensor, class []int64, c int64, least int, mean []float32) *mat.Dense {
	var at []int
	for i, y := range class {
		if y == c {
			at = append(at, i)
		}
	}

	if len(at) < least {
		return nil
	}

	d := len(mean)
	rows := mat.NewDense(len(at), d, nil)
	for j := range mean {
		sum := 0.0
		for _, i := range at {
			sum += float64(features.Data[i*d+j])
		}
		mu := sum / float64(len(at))
		for k, i := range at {
			rows.Set(k, j, float64(features.Data[i*d+j])-mu)
		}
		mean[j] = float32(mu)
	}

	return rows
}

// pack writes the upper triangle of rowsᵀ rows, row by row.
func pack(rows *mat.Dense, out []float32) {
	var cov mat.SymDense
	cov.SymOuterK(1, rows.T())
	at, d := 0, cov.SymmetricDim()
	for i := range d {
		for j := i; j < d; j++ {
			out[at] = float32(cov.At(i, j))
			at++
		}
	}
}

// held returns how many factors are sent of a class with n examples.
func (m GGTPC) held(n, d int) int { return min(m.Rank, n-1, d) }

// factor appends the rows √λ u of a class to the factors of all; what has no extent is zeros.
func (m GGTPC) factor(rows *mat.Dense, out *tensor.Tensor) error {
	n, dim := rows.Dims()
	held := m.held(n, dim)
	if held == 0 {
		return nil
	}

	a, err := rowAxes(rows, held)
	if err != nil {
		return err
	}

	block := make([]float32, held*dim)
	for j, u := range a.Vectors {
		for i, v := range u {
			block[j*dim+i] = float32(math.Sqrt(a.Sizes[j]) * v)
		}
	}

	out.Data = append(out.Data, block...)
	out.Shape[0] += held
	return nil
}

// moments is one client's decoded answer.
type moments struct {
	client  int
	n       []int
	mean    *tensor.Tensor // [C,D]
	cov     *tensor.Tensor // [C,D(D+1)/2], or
	factors *tensor.Tensor // [F,D]
	from    []int          // each class's first row of factors, and the end
}

// read checks an answer, whose shapes follow from its means and counts.
func (m GGTPC) read(upload method.Upload) (moments, error) {
	counts, mean := upload.Extra["n"], upload.Extra["mean"]
	bad := func(what string) (moments, error) {
		return moments{}, fmt.Errorf("client %d answered %s %v; the client runs another experiment", upload.Client,
			what, upload.Extra[what])
	}

	if mean == nil || len(mean.Shape) != 2 || mean.IsInt() {
		return bad("mean")
	}

	classes, dim := mean.Shape[0], mean.Shape[1]
	if counts == nil || counts.IsInt() || counts.Len() != classes {
		return bad("n")
	}

	out := moments{client: upload.Client, n: make([]int, classes), mean: mean, from: make([]int, classes+1)}
	for c, v := range counts.Data {
		if !(v >= 0 && v < 1<<24 && v == float32(int(v))) {
			return bad("n")
		}
		out.n[c] = int(v)
		out.from[c+1] = out.from[c] + max(0, m.held(int(v), dim))
	}

	name, want := "cov", []int{classes, dim * (dim + 1) / 2}
	if m.Stats != "packed" {
		name, want = "factors", []int{out.from[classes], dim}
	}

	t := upload.Extra[name]
	if t == nil || t.IsInt() || !slices.Equal(t.Shape, want) {
		return bad(name)
	}

	out.cov, out.factors = upload.Extra["cov"], upload.Extra["factors"]
	return out, nil
}

// addCov adds w times the client's covariance of a class to s.
func (a moments) addCov(s *mat.SymDense, c int, w float64) {
	at, d := 0, s.SymmetricDim()
	row := a.cov.Row(c).Data
	for i := range d {
		for j := i; j < d; j++ {
			s.SetSym(i, j, s.At(i, j)+w*float64(row[at]))
			at++
		}
	}
}

// addFactors appends √w times the client's factors of a class to rows.
func (a moments) addFactors(rows []float64, c int, w float64) []float64 {
	d := a.mean.Shape[1]
	for _, v := range a.factors.Data[a.from[c]*d : a.from[c+1]*d] {
		rows = append(rows, math.Sqrt(w)*float64(v))
	}
	return rows
}
