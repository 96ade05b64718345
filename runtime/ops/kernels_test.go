package ops_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

func init() {
	gradients(
		ofInputs(graph.Kernels, "BiasQuickGelu", "", nil, []int{5, 32}, []int{32}),
		ofInputs(graph.Kernels, "BiasQuickGelu", "many rows", nil, []int{1100, 16}, []int{16}),
		gradientCase{"LayerNormalization", "kernel", one(func(b *bench) node {
			b.UseKernels()
			return b.op("LayerNormalization", nil, b.x("x", 3, 32), b.constant("scale", 32), b.constant("bias", 32))
		}), 0},
		packed("", 16, []int64{0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 2, 3, 0, 2, 2, 4, 0, 2, 4, 5}),
		packed("wide heads, rows that nobody sees", 64,
			[]int64{1, 4, 0, 0, 1, 4, 0, 0, 1, 2, 3, 4, 1, 2, 1, 2, 2, 4, 2, 4}),
		sequences("", 5, 1, 16),
		sequences("wide heads", 3, 2, 64),
		sequences("heads between", 6, 2, 32),
		sequences("more rows than a vector", 40, 1, 16),
		packed("rows of a CLIP", 32, []int64{0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0}),
	)
}

// packed is attention over 5 rows of 2 heads of that width.
func packed(name string, width int, spans []int64) gradientCase {
	return gradientCase{graph.Kernels + ".Attention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "keys": graph.Attr(16)}
		return b.ApplyN(graph.Kernels, "Attention", at, 2, b.x("x", 5, 6*width), b.ints("spans", spans, 5, 4))[0]
	}), 0}
}

// sequences is attention over so many sequences of rows rows of 2 heads of that width.
func sequences(name string, rows, count, width int) gradientCase {
	return gradientCase{graph.Kernels + ".SequenceAttention", name, one(func(b *bench) node {
		at := attrs{"heads": graph.Attr(2), "rows": graph.Attr(rows)}
		return b.Apply(graph.Kernels, "SequenceAttention", at, b.x("x", rows*count, 6*width))
	}), 0}
}

// kernelStep is what lies between matrix products, layer norm, attention and activation, and its gradient.
func kernelStep(rows int, spans []int64) ([]graph.Output, tensor.Map) {
	const heads, width, keys = 4, 256, 32
	g := graph.New()
	g.UseKernels()
	x, feeds := g.Input("x", graph.Float, graph.Static(rows, 3*width)), tensor.Map{"x": tensor.New(rows, 3*width),
		"spans": tensor.OfInts(spans, rows, 4)}
	for i := range feeds["x"].Data {
		feeds["x"].Data[i] = float32(math.Sin(float64(i)))
	}
	vector := func(n int, of float32) node {
		return g.Const(tensor.Of(slices.Repeat([]float32{of}, n), n))
	}
	normed := g.ApplyN(graph.Standard, "LayerNormalization", nil, 3, x, vector(3*width, 1), vector(3*width, 0.1))[0]
	y := g.ApplyN(graph.Kernels, "Attention", attrs{"heads": graph.Attr(heads), "keys": graph.Attr(keys)}, 2, normed,
		g.Input("spans", graph.Int64, graph.Static(rows, 4)))[0]
	whole := attrs{"heads": graph.Attr(heads), "rows": graph.Attr(min(rows, 50))}
	y = y.Add(g.Apply(graph.Kernels, "SequenceAttention", whole, normed))
	y = g.Apply(graph.Kernels, "BiasQuickGelu", nil, y, vector(width, 0.2))
	d, err := grad.Of(y.Square().Sum(), x)
	if err != nil {
		panic(err)
	}
	return []graph.Output{{Name: "y", Node: y}, {Name: "d", Node: d[0]}}, feeds
}

// Threads take parts of the work, and give the same bytes.
func TestKernelsOnThreads(t *testing.T) {
	const rows = 1000
	var spans []int64
	for i := range int64(rows) {
		spans = append(spans, 0, min(i+1, 17), max(17, i-7), max(17, i+1))
	}
	outputs, feeds := kernelStep(rows, spans)
	model, err := graph.Model(outputs...)
	if err != nil {
		t.Fatal(err)
	}
	var want tensor.Map
	for _, threads := range []int{1, 2, 3} {
		got, err := ort.RunOnce(t.Context(), model, ort.Options{IntraThreads: threads}, feeds)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		for name := range want {
			if !slices.Equal(got[name].Data, want[name].Data) {
				t.Errorf("%s with %d threads differs", name, threads)
			}
		}
	}
}

// What is no number stays so, for the checks of finite values further up to see.
func TestKernelsKeepNaN(t *testing.T) {
	outputs, feeds := kernelStep(2, []int64{0, 1, 0, 0, 0, 1, 1, 2})
	model, err := graph.Model(outputs...)
	if err != nil {
		t.Fatal(err)
	}
	feeds["x"].Data[3] = float32(math.NaN()) // of the first row's query; the layer norm makes its whole row NaN
	got, err := ort.RunOnce(t.Context(), model, ort.Options{}, feeds)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range got {
		for i, x := range v.Data {
			if !math.IsNaN(float64(x)) {
				t.Fatalf("%s[%d] is %v", name, i, x)
			}
		}
	}
}

// Spans come from a graph, which may be anybody's.
func TestKernelsRefuseSpans(t *testing.T) {
	for _, spans := range [][]int64{{0, 3, 0, 0}, {-1, 1, 0, 0}, {0, 0, 1, 1}, {2, 1, 0, 2}, {0, 1, 1, 1 << 62},
		{0, 1, math.MinInt64, 1}} {
		outputs, feeds := kernelStep(2, append([]int64{0, 1, 0, 0}, spans...))
		model, err := graph.Model(outputs...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ort.RunOnce(t.Context(), model, ort.Options{}, feeds); err == nil || !strings.Contains(err.Error(),
			"spans do not fit") {
			t.Errorf("spans %v gave %v", spans, err)
		}
	}
}
