package ort_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/kernels"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// whole is a tensor of integers from -4 to 4: sums of 2000 products of them are exact in float32 in any order.
func whole(r *rand.Rand, shape ...int) *tensor.Tensor {
	x := tensor.New(shape...)
	for i := range x.Data {
		x.Data[i] = float32(r.IntN(9) - 4)
	}
	return x
}

// multiplied returns alpha x op(w) + b by the definition, for x [rows,k].
func multiplied(x, w, b *tensor.Tensor, transposed bool, alpha float32) *tensor.Tensor {
	k := x.Shape[len(x.Shape)-1]
	rows, n := x.Len()/k, w.Len()/k
	y := tensor.New(append(slices.Clone(x.Shape[:len(x.Shape)-1]), n)...)
	for i := range rows {
		for j := range n {
			sum := 0
			for l := range k {
				v := w.Data[l*n+j]
				if transposed {
					v = w.Data[j*k+l]
				}
				sum += int(x.Data[i*k+l] * v)
			}
			y.Data[i*n+j] = alpha * float32(sum)
			if b != nil {
				y.Data[i*n+j] += b.Data[j]
			}
		}
	}
	return y
}

// products is a graph of x [..,k] times a matrix in a file, plus an optional bias, plus the optional input "plus".
type products struct {
	x, w, b    *tensor.Tensor
	plus       *tensor.Tensor
	transposed bool
	alpha      float32
	file       string
}

func (p products) model(t testing.TB, dir string) *onnx.ModelProto {
	t.Helper()
	filetest.Write(t, filepath.Join(dir, p.file), bytesOf(p.w.Data))
	var in dims
	for range p.x.Shape[:len(p.x.Shape)-1] {
		in = append(in, fmt.Sprint("d", len(in)))
	}
	k := p.x.Shape[len(in)]
	out := append(slices.Clone(in), p.w.Len()/k)
	in = append(in, k)
	b := (&builder{}).in("x", f32, in).external("W", p.file, 0, 4*p.w.Len(), int64(p.w.Shape[0]), int64(p.w.Shape[1]))
	b.Node = append(b.Node, &onnx.NodeProto{Domain: "com.microsoft", OpType: "FusedMatMul", Input: []string{"x", "W"},
		Output: []string{"xw"}, Attribute: []*onnx.AttributeProto{{Name: "alpha", Type: onnx.AttributeProto_FLOAT,
			F: p.alpha}}})
	if p.transposed {
		b.Node[0].Attribute = append(b.Node[0].Attribute, intAttr("transB", 1))
	}
	if p.b != nil {
		b.constant("b", p.b.Data, int64(p.b.Len())).node("Add", []string{"xw", "b"}, "y")
	} else {
		b.Node[0].Output[0] = "y"
	}
	if p.plus != nil {
		last := b.Node[len(b.Node)-1]
		last.Output[0] = "product"
		b.in("plus", f32, out).Node = append(b.Node, &onnx.NodeProto{Domain: onnx.Kernels, OpType: "AddSameShape",
			Input: []string{"plus", "product"}, Output: []string{"y"}})
	}
	m := b.out("y", f32, out).model(t)
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: onnx.Microsoft, Version: 1},
		&onnx.OperatorSetIdProto{Domain: onnx.Kernels, Version: 1})
	return m
}

// everyProduct names what computes products on this processor: the operator Product with each instruction set, and ONNX
// Runtime.
func everyProduct() []string { return append(ownProducts(), ort.PlainProducts) }

func ownProducts() []string {
	return convert.Slice(kernels.InstructionSets(), func(s kernels.InstructionSet) string { return s.Name })
}

// forOwnProducts runs a test for each instruction set of this processor.
func forOwnProducts(t *testing.T, test func(t *testing.T, o ort.Options)) {
	if len(ownProducts()) == 0 {
		t.Skip("this processor has no AVX2, AVX-512 or NEON")
	}
	for _, name := range ownProducts() {
		o := ort.Options{Prepack: true, Products: name, WeightsDir: t.TempDir()}
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
}

// normal is a tensor of random numbers, with whose products sums are rounded.
func normal(r *rand.Rand, shape ...int) *tensor.Tensor {
	x := tensor.New(shape...)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	return x
}

// Products of integers are exact with the operator Product on any number of threads, and with ONNX Runtime. The sizes
// are below and above a tile (6 or 12 rows), the blocks for the caches (96 or 384 rows, 512 columns), and the work for
// which threads share a product.
func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	file := 0
	for _, x := range [][]int{{1, 512}, {5, 512}, {6, 512}, {7, 512}, {11, 512}, {12, 1100}, {13, 1}, {25, 513},
		{97, 512}, {400, 1030}, {769, 512}, {2, 3, 2048}, {2048}, {1, 2, 1, 3, 600}, {0, 512}} {
		k := x[len(x)-1]
		n := max(64, (1<<16+k-1)/k+31) / 32 * 32
		for _, transposed := range []bool{false, true} {
			file++
			p := products{x: whole(r, x...), w: whole(r, k, n), transposed: transposed, alpha: 0.5,
				file: fmt.Sprint("w", file)}
			if transposed {
				p.w.Shape = []int{n, k}
			}
			if file%3 == 0 {
				p.b = whole(r, n)
			}
			want, in := multiplied(p.x, p.w, p.b, transposed, p.alpha), tensor.Map{"x": p.x}
			if file%4 < 2 {
				p.plus = whole(r, want.Shape...)
				want.Axpy(1, p.plus)
				in["plus"] = p.plus
			}
			for _, name := range everyProduct() {
				for _, threads := range []int{1, 3} {
					o := ort.Options{Prepack: true, Products: name, IntraThreads: threads, WeightsDir: dir}
					s := open(t, p.model(t, dir), o)
					if (ort.Packed() == 1) != (name != ort.PlainProducts) {
						t.Errorf("x %v, %+v: %d matrices are packed", x, o, ort.Packed())
					}
					equal(t, run(t, s, in)["y"], want)
					if err := s.Close(); err != nil || ort.Packed() != 0 {
						t.Errorf("%d matrices stay packed: %v", ort.Packed(), err)
					}
				}
			}
		}
	}
}

// Product sums in parts of 512. Rounding changes a number by 0.425 u of itself in the root mean square (u = 2^-24,
// leading digits by Benford's law). The partial sums of n products with mean 0 grow like sqrt(n), so rounding changes a
// single running sum by 0.425 u sqrt(n/2) of its size: 8.1e-7 for 2048. In parts it is 0.425 u sqrt(512/2 + 4/2) =
// 4.1e-7.
func TestProductsRound(t *testing.T) {
	forOwnProducts(t, productsRound)
}

func productsRound(t *testing.T, o ort.Options) {
	const rows, k, n = 32, 2048, 64
	r := rand.New(rand.NewPCG(5, 6))
	p := products{x: normal(r, rows, k), w: normal(r, k, n), alpha: 1, file: "w"}
	y := run(t, open(t, p.model(t, o.WeightsDir), o), tensor.Map{"x": p.x})["y"]
	var off, size float64
	for i := range rows {
		for j := range n {
			sum := 0.0
			for l := range k {
				sum += float64(p.x.Data[i*k+l]) * float64(p.w.Data[l*n+j])
			}
			off += (float64(y.Data[i*n+j]) - sum) * (float64(y.Data[i*n+j]) - sum)
			size += sum * sum
		}
	}
	if got := math.Sqrt(off / size); !(got < 5e-7) {
		t.Errorf("products are off by %g of their size", got)
	}
}

// Sessions over a folder share a packed matrix while one of them is open, and sessions with another instruction set do
// not.
func TestProductsAreShared(t *testing.T) {
	forOwnProducts(t, productsAreShared)
}

func productsAreShared(t *testing.T, o ort.Options) {
	r, dir := rand.New(rand.NewPCG(3, 4)), o.WeightsDir
	p := products{x: whole(r, 5, 512), w: whole(r, 512, 128), alpha: 1, file: "w"}
	q := p
	q.transposed, q.x = true, whole(r, 5, 128) // the same numbers as [128,512], transposed
	backwards, m := q.model(t, dir), p.model(t, dir)
	first, second, third := open(t, m, o), open(t, m, o), open(t, backwards, o)
	if n := ort.Packed(); n != 2 {
		t.Errorf("%d matrices are packed for two forms of one", n)
	}
	for _, o.Products = range ownProducts() {
		equal(t, run(t, open(t, m, o), tensor.Map{"x": p.x})["y"], multiplied(p.x, p.w, nil, false, 1))
	}
	if n := ort.Packed(); n != 1+len(ownProducts()) {
		t.Errorf("%d matrices are packed for every instruction set", n)
	}
	goldentest.NoError(t, first.Close())
	equal(t, run(t, second, tensor.Map{"x": p.x})["y"], multiplied(p.x, p.w, nil, false, 1))
	equal(t, run(t, third, tensor.Map{"x": q.x})["y"], multiplied(q.x, q.w, nil, true, 1))
}

// If a file is replaced or rewritten while a session uses it, a new session multiplies by the new numbers, for every
// way of loading weights, and the first one by its own.
func TestReplacedWeightsAreOthers(t *testing.T) {
	for _, o := range []ort.Options{{Prepack: true}, {Prepack: true, Products: ort.PlainProducts}, {Bind: true}, {}} {
		r, dir := rand.New(rand.NewPCG(7, 8)), t.TempDir()
		o.WeightsDir = dir
		old := products{x: whole(r, 5, 512), w: whole(r, 512, 128), alpha: 1, file: "w"}
		first := open(t, old.model(t, dir), o)
		path := filepath.Join(dir, "w")
		if err := os.Rename(path, filepath.Join(dir, "kept")); err != nil { // a mapped file outlives its replacement
			t.Fatal(err)
		}
		now := old
		now.w = whole(r, 512, 128)
		second := open(t, now.model(t, dir), o)
		equal(t, run(t, second, tensor.Map{"x": now.x})["y"], multiplied(now.x, now.w, nil, false, 1))
		equal(t, run(t, first, tensor.Map{"x": old.x})["y"], multiplied(old.x, old.w, nil, false, 1))
		goldentest.NoError(t, second.Close())
		if !o.Prepack || o.Products != "" || len(ownProducts()) == 0 {
			continue // sessions that map the file see changes
		}
		now.w = whole(r, 512, 128)
		model := now.model(t, dir) // writes into the same file
		goldentest.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
		third := open(t, model, o)
		equal(t, run(t, third, tensor.Map{"x": now.x})["y"], multiplied(now.x, now.w, nil, false, 1))
	}
}

// A graph with the operator itself and wrong shapes is an error.
func TestWrongProducts(t *testing.T) {
	for name, c := range map[string]struct {
		x, w, b []int
	}{
		"columns of x":    {[]int{2, 8}, []int{1, 7, 32}, nil},
		"another panel":   {[]int{2, 8}, []int{2, 8, 8}, nil},
		"no panels":       {[]int{2, 8}, []int{8, 32}, nil},
		"a scalar":        {[]int{}, []int{1, 1, 32}, nil},
		"a bias too long": {[]int{2, 8}, []int{1, 8, 32}, []int{64}},
	} {
		b := &builder{}
		feed := tensor.Map{}
		var names []string
		for _, in := range []struct {
			name  string
			shape []int
		}{{"x", c.x}, {"w", c.w}, {"b", c.b}} {
			if in.name == "b" && c.b == nil {
				continue
			}
			d := dims{}
			for _, n := range in.shape {
				d = append(d, n)
			}
			b.in(in.name, f32, d)
			feed[in.name] = tensor.New(in.shape...)
			names = append(names, in.name)
		}
		b.Node = append(b.Node, &onnx.NodeProto{Domain: onnx.Kernels, OpType: "Product", Input: names,
			Output: []string{"y"}, Attribute: []*onnx.AttributeProto{{Name: "alpha", Type: onnx.AttributeProto_FLOAT,
				F: 1}}})
		m := b.out("y", f32, nil).model(t)
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: onnx.Kernels, Version: 1})
		s, err := ort.NewSession(m, ort.Options{})
		if err == nil {
			_, err = s.Run(t.Context(), feed)
			s.Close()
		}
		want := "product: shapes do not fit"
		if len(ownProducts()) == 0 {
			want = "this processor has no AVX2, AVX-512 or NEON"
		}
		t.Run(name, func(t *testing.T) { wantError(t, err, want) })
	}
}

// fma returns s + a x, rounded once. The product is exact in float64. If the sum is not, its last bit is made odd, so
// that rounding it to float32 rounds the exact sum (Boldo and Melquiond, Emulation of FMA, 2008).
func fma(s, a, x float32) float32 {
	p, q := float64(a)*float64(x), float64(s)
	sum := p + q
	lost := (p - (sum - (sum - p))) + (q - (sum - p))
	if bits := math.Float64bits(sum); lost != 0 && bits&1 == 0 {
		sum = math.Nextafter(sum, math.Inf(int(math.Copysign(1, lost))))
	}
	return float32(sum)
}

// summed returns alpha x w + b with the roundings that products.go promises: sums of 512 terms one after the other, and
// the sum of these.
func (p products) summed() *tensor.Tensor {
	rows, k, n := p.x.Shape[0], p.w.Shape[0], p.w.Shape[1]
	y := tensor.New(rows, n)
	for i := range rows {
		for from := 0; from < k; from += 512 {
			part := make([]float32, n)
			for l := from; l < min(k, from+512); l++ {
				for j := range n {
					part[j] = fma(part[j], p.w.Data[l*n+j], p.x.Data[i*k+l])
				}
			}
			for j := range n {
				y.Data[i*n+j] += part[j]
			}
		}
		for j := range n {
			y.Data[i*n+j] = float32(y.Data[i*n+j]*p.alpha) + p.b.Data[j]
		}
	}
	return y
}

// TestProductsOnThreads checks that products with rounding have the same bits with every instruction set, on any number
// of threads, and for a row alone and among others.
func TestProductsOnThreads(t *testing.T) {
	forOwnProducts(t, productsOnThreads)
}

func productsOnThreads(t *testing.T, o ort.Options) {
	const rows, k, n = 37, 1100, 128
	r, dir := rand.New(rand.NewPCG(7, 8)), o.WeightsDir
	p := products{x: normal(r, rows, k), w: normal(r, k, n), b: normal(r, n), alpha: 0.3, file: "w"}
	want := p.summed()
	for _, threads := range []int{1, 2, 3, 5, 7} {
		o.IntraThreads = threads
		s := open(t, p.model(t, dir), o)
		if ort.Packed() != 1 {
			t.Fatal("the operator Product is not used")
		}
		if got := run(t, s, tensor.Map{"x": p.x})["y"]; !slices.Equal(got.Data, want.Data) {
			t.Errorf("%d threads give other bits", threads)
		}
		s.Close()
	}
	one := p
	o.IntraThreads = 1
	for _, i := range []int{0, 5, 6, 11, 12, 36} {
		one.x = p.x.Rows([]int{i})
		s := open(t, one.model(t, dir), o)
		if got := run(t, s, tensor.Map{"x": one.x})["y"]; !slices.Equal(got.Data, want.Row(i).Data) {
			t.Errorf("row %d alone has other bits", i)
		}
		s.Close()
	}
}
