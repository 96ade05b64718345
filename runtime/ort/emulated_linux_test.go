package ort_test

import (
	"math"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/kernels"
	"promptfed/runtime/nn"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// someRows is a shared prefix of 5 rows, causal, and suffixes of 3, 1 and 4 rows of their own that see all of it.
func someRows() (spans [][5]int) {
	for i := range 5 {
		spans = append(spans, [5]int{0, i, i, i + 1, i})
	}
	at := 5
	for _, n := range []int{3, 1, 4} {
		for i := range n {
			spans = append(spans, [5]int{0, 5, at, at + i + 1, at + i})
		}
		at += n
	}
	return spans
}

// block returns all kernels that a device runs, in a step of two blocks over 13 rows, of which the second reads the
// last rows of the suffixes, and the gradient of the rows.
func block(t *testing.T, heads, width int) ([]graph.Output, tensor.Map) {
	g := graph.New()
	g.UseKernels(graph.DeviceKernels)
	seed := 0
	draw := func(shape ...int) *tensor.Tensor {
		v := tensor.New(shape...)
		for i := range v.Data {
			seed++
			v.Data[i] = float32(math.Sin(float64(seed*seed))) * 0.3
		}
		return v
	}

	weight := func(shape ...int) graph.Node { return g.Const(draw(shape...)) }
	x := g.Input("x", graph.Float, graph.Static(13, width))
	rows, spans := x, someRows()
	for i := range 2 {
		h := nn.LayerNorm(rows, weight(width), weight(width), 1e-5)
		qkv := nn.Linear(h, weight(3*width, width), weight(3*width), 1, 1)
		if i == 1 {
			spans = [][5]int{spans[7], spans[8], spans[12]}
			rows = rows.Rows(g.Ints(7, 8, 12))
		}
		y := nn.PackedAttention(qkv, spans, heads)
		rows = nn.Residual(rows, nn.Linear(y, weight(width, width), weight(width), 1, 1))
		same := func(y, _ graph.Node, _ float64) graph.Node { return y }
		h = nn.LayerNorm(rows, weight(width), weight(width), 1e-5)
		rows = nn.Residual(rows, nn.MLP(h, weight(2*width, width), weight(2*width), weight(width, 2*width),
			weight(width), nn.QuickGELU, same, same))
	}

	features := rows.L2Normalize()
	logits := g.Const(draw(6, width)).MatMul(features.Transpose(1, 0)).MulScalar(5)
	loss := graph.CrossEntropy(logits, g.Const(tensor.OfInts([]int64{0, 1, 2, 2, 1, 0}, 6)))
	d, err := grad.Of(loss, x)
	goldentest.NoError(t, err)

	return []graph.Output{{Name: "features", Node: features}, {Name: "loss", Node: loss}, {Name: "x'", Node: d[0]}},
		tensor.Map{"x": draw(13, width)}
}

// library compiles a library of C.
func library(t *testing.T, source string, flags ...string) string {
	to := filepath.Join(t.TempDir(), "library.so")
	arguments := append([]string{"-shared", "-fPIC", "-O1", "-I../kernels", "-o", to, source, "-lm"}, flags...)
	if out, err := exec.CommandContext(t.Context(), "cc", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return to
}

// emulate returns options of sessions on the CPU whose kernels emulate.c runs.
func emulate(t *testing.T, flags ...string) ort.Options {
	emulated := library(t, "../kernels/testdata/emulate.c", flags...)
	o, err := ort.EmulateDevice(ort.Options{OptLevel: ort.OptNone}, emulated)
	goldentest.NoError(t, err)

	return o
}

// Kernels that compute anything else are refused, before a step depends on them.
func TestWrongDeviceKernels(t *testing.T) {
	for _, wrong := range []string{"-Dexpf=cosf", "-Dsqrtf=fabsf"} {
		goldentest.WantErrorOf(t, wrong, ort.CompareKernels(emulate(t, wrong)), "differs from the CPU's")
	}
}

// The kernels of device.cu, which emulate.c runs on the CPU, give what the operators of the CPU give. TestGradients of
// runtime/ops compares those with finite differences and with PyTorch.
func TestDeviceKernels(t *testing.T) {
	emulated := emulate(t)
	goldentest.NoError(t, ort.CompareKernels(emulated))
	for _, c := range []struct{ heads, width int }{{2, 32}, {1, 128}, {4, 256}} {
		outputs, feeds := block(t, c.heads, c.width)
		model := orttest.Model(t, outputs...)
		want := orttest.RunOnce(t, model, ort.Options{OptLevel: ort.OptNone}, feeds)
		got := orttest.RunOnce(t, model, emulated, feeds)
		for name, w := range want {
			if d := tensor.Distance(got[name], w); !(d <= 2e-5*w.MaxAbs()) {
				t.Errorf("%d heads of %d: %s differs by %g of at most %g", c.heads, c.width/c.heads, name, d,
					w.MaxAbs())
			}
		}
	}
}

// A GPU runs the kernels, and in each precision a step of two blocks gives what the CPU gives in float32.
func TestKernelsOnDevice(t *testing.T) {
	if orttest.OnCPU() {
		t.Skip("needs a GPU (make test-cuda)")
	}
	goldentest.NoError(t, ort.CompareKernels(ort.Options{Provider: ort.CUDA}))
	storeConstants(t)
	outputs, feeds := block(t, 2, 64)
	model := orttest.Model(t, outputs...)
	want := orttest.RunOnce(t, model, ort.Options{Provider: ort.CPU}, feeds)
	for precision, most := range map[string]float64{ort.Float32: 1e-4, ort.TF32: 5e-3, ort.Float16: 5e-3,
		ort.BFloat16: 4e-2} {
		got := orttest.RunOnce(t, model, ort.Options{Provider: ort.CUDA, Precision: precision}, feeds)
		for name, w := range want {
			d := tensor.Distance(got[name], w) / w.MaxAbs()
			if t.Logf("%s: %s differs by %.1g", precision, name, d); !(d <= most) {
				t.Errorf("%s: %s differs by %g", precision, name, d)
			}
		}
	}
}

// storeConstants makes constant matrices count as stored weights until the test ends.
func storeConstants(t *testing.T) {
	lower := ort.LowerPrecision
	t.Cleanup(func() { ort.LowerPrecision = lower })
	ort.LowerPrecision = onnxtest.Lower(onnx.LowerPrecision).Constants
}

// With products in float16, the kernels of two blocks read and write it, so that no casts lie between them and the
// products. Results have the rounding of float16. bfloat16, which the CPU has no products for, takes the same way.
func TestDeviceKernelsInFloat16(t *testing.T) {
	storeConstants(t)
	o := emulate(t)
	o.Bind, o.Precision = true, ort.Float16
	outputs, feeds := block(t, 2, 64)
	model := orttest.Model(t, outputs...)
	low := onnx.TensorProto_FLOAT16
	casts, inFloat16 := 0, 0
	joined := kernels.ForDevice(ort.LowerPrecision(model, low), low).Graph
	for _, n := range joined.Node {
		isInput := func(w *onnx.TensorProto) bool { return w.Name == n.Input[0] }
		if n.OpType == "Cast" && !slices.ContainsFunc(joined.Initializer, isInput) {
			casts++
		}
		if strings.HasSuffix(n.OpType, "_float16") {
			inFloat16++
		}
	}
	if casts != 5 || inFloat16 != 20 { // those of features, logits and their gradients
		t.Errorf("%d casts, %d operators in float16", casts, inFloat16)
	}

	exact := orttest.RunOnce(t, model, ort.Options{OptLevel: ort.OptNone}, feeds)
	got := orttest.RunOnce(t, model, o, feeds)
	for name, w := range exact {
		d := tensor.Distance(got[name], w) / w.MaxAbs()
		if t.Logf("%s differs by %.1g", name, d); !(d <= 5e-3) || d == 0 {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}

// A device cannot refuse spans and labels as the CPU does, because they lie in its memory. It reads nothing outside of
// the rows: a query with spans that do not fit attends to nothing, and a label that is no class makes the loss NaN.
func TestDeviceKernelsCheckIndices(t *testing.T) {
	emulated := emulate(t)
	run := func(spans []int64, label int64) tensor.Map {
		const rows, width = 2, 32
		g := graph.New()
		x := g.Input("x", graph.Float, graph.Static(rows, 3*width))
		at := graph.Attrs{"heads": graph.Attr(2), "keys": graph.Attr(16)}
		span := g.Input("spans", graph.Int64, graph.Static(rows, 5))
		ask := g.Const(tensor.OfInts([]int64{-1 << 62, 1 << 62, 1 << 62, 0, 2, 1}, rows, 3))
		y := g.ApplyN(graph.Kernels, "Attention", at, 2, x, span, ask)
		d := g.Apply(graph.Kernels, "AttentionGrad", at, x, span, y[1], y[0], y[0], ask)
		labels := g.Input("label", graph.Int64, graph.Static(rows))
		loss := g.ApplyN(graph.Kernels, "CrossEntropy", nil, 2, y[0], labels)
		model := orttest.Model(t, graph.Output{Name: "y", Node: y[0]}, graph.Output{Name: "d", Node: d},
			graph.Output{Name: "loss", Node: loss[0]})
		ones := tensor.New(rows, 3*width)
		for i := range ones.Data {
			ones.Data[i] = 1
		}
		return orttest.RunOnce(t, model, emulated, tensor.Map{"x": ones, "spans": tensor.OfInts(spans, rows, 5),
			"label": tensor.OfInts([]int64{0, label}, rows)})
	}

	for _, second := range [][]int64{{0, 3, 0, 0, 1}, {-1, 1, 0, 0, 1}, {2, 1, 0, 2, 1}, {0, 1, 1, 1 << 62, 1},
		{0, 1, math.MinInt64, 1, 1}, {0, 1, 0, 0, 2}, {0, 1, 0, 0, -1}} {
		got := run(slices.Concat([]int64{0, 1, 0, 0, 0}, second), 31)
		if y := got["y"].Data; y[0] != 1 || y[32] != 0 || got["d"].NonFinite() >= 0 || !(got["loss"].Data[0] > 0) {
			t.Errorf("%v: %v, %v", second, y, got["loss"].Data)
		}
	}

	for _, label := range []int64{-1, 32, 1 << 62} {
		if loss := run([]int64{0, 1, 0, 0, 0, 0, 2, 0, 0, 1}, label)["loss"].Data[0]; loss == loss {
			t.Errorf("label %d: the loss is %v", label, loss)
		}
	}
}

// Kernels round to float16 and bfloat16 as Cast does, and read both: gelu(x) and x + b + y, with b = 0.
func TestDeviceKernelsRound(t *testing.T) {
	emulated := emulate(t)
	x, want := tensor.New(4, 16), tensor.New(4, 16)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i*i))) * 3
		want.Data[i] = float32(float64(x.Data[i]) / (1 + math.Exp(-float64(x.Data[i]))))
	}
	for precision, kind := range map[string]int64{"_float16": 10, "_bfloat16": 16} {
		b := (&builder{}).in("x", f32, dims{4, 16}).in("zero", f32, dims{16})
		b.node("Cast", []string{"x"}, "low", intAttr("to", kind))
		b.node("Cast", []string{"low"}, "rounded", intAttr("to", 1))
		b.node("BiasQuickGelu"+precision, []string{"low", "zero"}, "y_low")
		b.node("BiasQuickGelu", []string{"rounded", "zero"}, "y_exact")
		b.node("AddBiasSameShape"+precision, []string{"low", "zero", "x"}, "z")
		b.node("Cast", []string{"y_low"}, "y", intAttr("to", 1))
		b.node("Cast", []string{"y_exact"}, "y_cast", intAttr("to", kind))
		b.node("Cast", []string{"y_cast"}, "y_want", intAttr("to", 1)).node("Add", []string{"rounded", "x"}, "z_want")
		for _, name := range []string{"y", "y_want", "z", "z_want"} {
			b.out(name, f32, dims{4, 16})
		}
		m := b.model(t)
		for _, n := range m.Graph.Node {
			if strings.Contains(n.OpType, "Bias") {
				n.Domain = onnx.Kernels
			}
		}
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: onnx.Kernels, Version: 1})
		got := orttest.RunOnce(t, m, emulated, tensor.Map{"x": x, "zero": tensor.New(16)})
		for _, name := range []string{"y", "z"} {
			if !slices.Equal(got[name].Data, got[name+"_want"].Data) {
				t.Errorf("%s%s: %v, want %v", name, precision, got[name].Data, got[name+"_want"].Data)
			}
		}
		if d := tensor.Distance(got["y"], want); !(d > 0 && d < 0.02) {
			t.Errorf("%s: gelu differs by %g", precision, d)
		}
	}
}

// While a device captures a graph, no other thread allocates or frees memory of any device: calls, new graphs, closing
// and freed values wait. Each thread chooses its device before it uses CUDA's runtime library, which cudart.c emulates.
func TestNothingElseDuringACapture(t *testing.T) {
	living, undo, err := ort.EmulateCUDA(library(t, "testdata/cudart.c"))
	goldentest.NoError(t, err)
	defer undo()
	// A value of another test that is freed would wait too.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	o, x := ort.Options{Provider: ort.CPU, Bind: true, Device: 1}, tensor.New(1<<18) // pinned
	negative := (&builder{}).in("x", f32, dims{"B"}).node("Neg", []string{"x"}, "y").out("y", f32, dims{"B"}).model(t)
	synctest.Test(t, func(t *testing.T) {
		s, other, in := open(t, negative, o), open(t, negative, o), tensor.Map{"x": tensor.New(3)}
		held, err := s.RunKeep(t.Context(), tensor.Map{"x": x}, nil)
		goldentest.NoError(t, err)
		for range 3 {
			run(t, s, tensor.Map{"x": x})
		}
		run(t, other, in)
		do, end := ort.Threads(5)
		var done atomic.Int64
		check := func(tasks, things int64) {
			if synctest.Wait(); done.Load() != tasks || living() != things {
				t.Errorf("%d tasks are done, %d streams and blocks of memory, want %d and %d", done.Load(), living(),
					tasks, things)
			}
		}
		ort.Alone(func() error {
			for _, task := range []func(){func() { s.Close() }, func() { ort.FreeCopies(held["y"]) },
				func() { run(t, other, in) }, func() { do(t.Context(), func() error { return nil }) }} {
				go func() {
					task()
					done.Add(1)
				}()
			}
			check(0, 2)
			return nil
		})
		check(4, 1)
		goldentest.NoError(t, other.Close())
		end()
		check(4, 0)
	})
}
