package kernels_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/kernels"
	_ "promptfed/runtime/ops"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// step returns the operators between the matrix products of a training step (layer norm, attention, activation), their
// gradient, and feeds.
func step(heads, rows int, spans []int64) ([]graph.Output, tensor.Map) {
	const width, keys = 256, 32
	g := graph.New()
	g.UseKernels(graph.CPUKernels)
	x, feeds := g.Input("x", graph.Float, graph.Static(rows, 3*width)), tensor.Map{"x": tensor.New(rows, 3*width),
		"spans": tensor.OfInts(spans, rows, 5)}
	for i := range feeds["x"].Data {
		feeds["x"].Data[i] = float32(math.Sin(float64(i)))
	}
	vector := func(n int, given float32) graph.Node {
		return g.Const(tensor.Of(slices.Repeat([]float32{given}, n), n))
	}
	normed := g.ApplyN(graph.Standard, "LayerNormalization", nil, 3, x, vector(3*width, 1), vector(3*width, 0.1))[0]
	spanned := graph.Attrs{"heads": graph.Attr(heads), "keys": graph.Attr(keys)}
	y := g.ApplyN(graph.Kernels, "Attention", spanned, 2, normed,
		g.Input("spans", graph.Int64, graph.Static(rows, 5)))[0]
	whole := graph.Attrs{"heads": graph.Attr(heads), "rows": graph.Attr(min(rows, 50))}
	y = y.Add(g.Apply(graph.Kernels, "SequenceAttention", whole, normed))
	y = g.Apply(graph.Kernels, "BiasQuickGelu", nil, y, vector(width, 0.2))
	d, err := grad.Of(y.Square().Sum(), x)
	if err != nil {
		panic(err)
	}
	return []graph.Output{{Name: "y", Node: y}, {Name: "d", Node: d[0]}}, feeds
}

// manyRows runs a step of 1,000 rows, of which all but 17 also attend to their last seven predecessors.
func manyRows(t *testing.T, heads, threads int) tensor.Map {
	const rows = 1000
	var spans []int64
	for i := range int64(rows) {
		spans = append(spans, 0, min(i+1, 17), max(17, i-7), max(17, i+1), i)
	}
	outputs, feeds := step(heads, rows, spans)
	model := orttest.Model(t, outputs...)
	return orttest.RunOnce(t, model, ort.Options{IntraThreads: threads}, feeds)
}

// Results are the same bytes for any number of threads.
func TestKernelsOnThreads(t *testing.T) {
	var want tensor.Map
	for _, threads := range []int{1, 2, 3} {
		got := manyRows(t, 4, threads)
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

// The operators of every instruction set give the same results, up to rounding. Each set runs in a process of its own.
// TestGradients in runtime/ops compares the fastest with finite differences.
func TestKernelsOfEverySet(t *testing.T) {
	allHeads := []int{2, 4, 8, 16} // of 128, 64, 32 and 16 columns
	if path := os.Getenv("PROMPTFED_TEST_OUTPUT"); path != "" {
		for _, set := range kernels.InstructionSets() {
			if strings.Contains(os.Getenv("GODEBUG"), "cpu."+set.Name) {
				t.Errorf("%s is used although it is off", set.Name)
			}
		}
		var out []float32
		for _, heads := range allHeads {
			got := manyRows(t, heads, 1)
			out = append(append(out, got["y"].Data...), got["d"].Data...)
		}
		b, err := binary.Append(nil, binary.LittleEndian, out)
		goldentest.NoError(t, errors.Join(err, os.WriteFile(path, b, 0o600)))
		return
	}
	var want []float32
	for _, off := range []string{"", "cpu.avx512f=off", "cpu.avx512f=off,cpu.avx2=off"} {
		path := filepath.Join(t.TempDir(), "output")
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKernelsOfEverySet$")
		child.Env = append(os.Environ(), "PROMPTFED_TEST_OUTPUT="+path, "GODEBUG="+off)
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", off, err, out)
		}
		b := filetest.Read(t, path)
		got := make([]float32, len(b)/4)
		if _, err := binary.Decode(b, binary.LittleEndian, got); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		largest := float64(max(slices.Max(want), -slices.Min(want)))
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-6*largest) {
				t.Fatalf("%s: element %d is %v, want %v", off, i, got[i], want[i])
			}
		}
	}
}

// NaN propagates, so that checks for finite values further up see it.
func TestKernelsKeepNaN(t *testing.T) {
	outputs, feeds := step(4, 2, []int64{0, 1, 0, 0, 0, 0, 1, 1, 2, 1})
	model := orttest.Model(t, outputs...)
	feeds["x"].Data[3] = float32(math.NaN()) // of the first row's query; the layer norm makes its whole row NaN
	got := orttest.RunOnce(t, model, ort.Options{}, feeds)
	for name, v := range got {
		for i, x := range v.Data {
			if !math.IsNaN(float64(x)) {
				t.Fatalf("%s[%d] is %v", name, i, x)
			}
		}
	}
}

// Spans come from a graph, which may be a stranger's, so the kernels check them.
func TestKernelsRefuseSpans(t *testing.T) {
	for _, spans := range [][]int64{{0, 3, 0, 0, 1}, {-1, 1, 0, 0, 1}, {0, 0, 1, 1, 1}, {2, 1, 0, 2, 1},
		{0, 1, 1, 1 << 62, 1}, {0, 1, math.MinInt64, 1, 1}, {0, 1, 0, 0, 2}, {0, 1, 0, 0, -1}} {
		outputs, feeds := step(4, 2, append([]int64{0, 1, 0, 0, 0}, spans...))
		model := orttest.Model(t, outputs...)
		_, err := ort.RunOnce(t.Context(), model, ort.Options{}, feeds)
		goldentest.WantErrorOf(t, fmt.Sprint(spans), err, "spans do not fit")
	}
}
