package clip_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// onDisk returns tensors from one file of raw elements, as in converted checkpoints.
type onDisk struct {
	dir  string
	at   map[string]int64
	size map[string][]int
}

func (d onDisk) Has(name string) bool { return d.size[name] != nil }

func (d onDisk) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	return g.Weight(name, graph.Float, graph.External{File: "weights", Offset: d.at[name],
		Length: int64(4 * tensor.Size(d.size[name]))}, shape...)
}

// writeFormula writes formula weights of the given shapes to a folder.
func writeFormula(t testing.TB, dir string, shapes map[string][]int) onDisk {
	return writeWeights(t, dir, shapes, formula)
}

func writeWeights(t testing.TB, dir string, shapes map[string][]int, formula func(string,
	[]int) *tensor.Tensor) onDisk {
	t.Helper()
	d := onDisk{dir, map[string]int64{}, shapes}
	f, err := os.Create(filepath.Join(dir, "weights"))
	goldentest.NoError(t, err)
	w := bufio.NewWriterSize(f, 1<<20)
	var at int64
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		d.at[name] = at
		data := formula(name, shapes[name]).Data
		b, err := binary.Append(nil, binary.LittleEndian, data)
		goldentest.NoError(t, err)
		w.Write(b)
		at += int64(len(b))
	}
	goldentest.NoError(t, w.Flush())
	goldentest.NoError(t, f.Close())
	return d
}

// step is a compiled training step of the text tower: loss and prompt gradients.
type step struct {
	s  *ort.Session
	in tensor.Map
}

func (p step) run(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	if _, err := p.s.Run(context.Background(), p.in); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

// prompted returns prompts of 16 tokens as inputs of g.
func prompted(g *graph.Graph, n, width int, in tensor.Map) []clip.Prompt {
	out := make([]clip.Prompt, n)
	for i := range out {
		name := fmt.Sprintf("ctx%d", i)
		in[name] = formula(name, []int{16, width})
		out[i].Ctx = g.Input(name, graph.Float, graph.Static(16, width))
	}
	return out
}

// textStep is the forward and backward pass from features to the prompts, in the cheap or the plain form, with or
// without kernels.
func textStep(t testing.TB, w onDisk, s *clip.Suffixes, prompts int, plain, kernels bool, o ort.Options) step {
	t.Helper()
	g, in, text := graph.New(), tensor.Map{}, clip.Text{TextArch: clip.TextB}
	if kernels {
		g.UseKernels(graph.CPUKernels)
	}
	ps := prompted(g, prompts, text.Width, in)
	var features, wrt []graph.Node
	if plain {
		for _, p := range ps {
			emb, read := sequence(t, g, s, p, text.Width, text.Context)
			features = append(features, text.Plain(w, emb, read))
		}
	} else {
		features = text.Prompts(g, w, s, ps)
	}
	loss := g.Scalar(0)
	for i, f := range features {
		loss = loss.Add(f.Mul(g.Const(formula("cotangent", []int{len(s.IDs), text.EmbedDim}))).Sum())
		wrt = append(wrt, ps[i].Ctx)
	}
	d := orttest.Gradients(t, loss, wrt...)
	out := []graph.Output{{Name: "loss", Node: loss}}
	for i := range d {
		out = append(out, graph.Output{Name: fmt.Sprintf("d%d", i), Node: d[i]})
	}
	o.WeightsDir = w.dir
	if keep := os.Getenv("CLIP_BENCH_KEEP"); keep != "" { // the graph and its weights, for a profiler
		model, err := graph.Marshal(out...)
		if err == nil {
			err = os.WriteFile(filepath.Join(keep, fmt.Sprintf("c%d.p%d.%v.onnx", len(s.IDs), prompts, plain)), model,
				0o644)
		}
		goldentest.NoError(t, err)
	}
	return step{compile(t, o, out...), in}
}

// gemm runs only the linear layers of a tower's blocks on the given number of rows, forward (x wᵀ) and backward (x
// w): the highest rate that the step could reach.
func gemm(t testing.TB, w onDisk, prefix string, width, layers, rows int, o ort.Options) (step, float64) {
	t.Helper()
	g := graph.New()
	x := map[int]graph.Node{}
	in := tensor.Map{}
	for _, n := range []int{width, 3 * width, 4 * width} {
		name := fmt.Sprintf("x%d", n)
		in[name] = formula(name, []int{rows, n})
		x[n] = g.Input(name, graph.Float, graph.Static(rows, n))
	}
	flops := 0.0
	total := g.Scalar(0)
	for i := range layers {
		p := fmt.Sprintf("%stransformer.resblocks.%d.", prefix, i)
		for name, s := range map[string][2]int{"attn.in_proj_weight": {3 * width, width},
			"attn.out_proj.weight": {width, width},
			"mlp.c_fc.weight":      {4 * width, width}, "mlp.c_proj.weight": {width, 4 * width}} {
			m := w.Node(g, p+name, s[0], s[1])
			total = total.Add(x[s[1]].Linear(m, graph.Node{}).Slice(0, 0, 1).Slice(1, 0,
				1)).Add(x[s[0]].MatMul(m).Slice(0, 0, 1).Slice(1, 0, 1))
			flops += 4 * float64(rows) * float64(s[0]) * float64(s[1])
		}
	}
	o.WeightsDir = w.dir
	return step{compile(t, o, graph.Output{Name: "y", Node: total}), in}, flops
}

// visionStep is the forward and backward pass from the features of images to 16 prompt tokens, with or without kernels.
func visionStep(t testing.TB, w onDisk, v clip.Vision, images int, kernels bool, o ort.Options) step {
	t.Helper()
	g, in := graph.New(), tensor.Map{"tokens": formula("tokens", []int{16, v.Width}),
		"pixels": formula("pixels", []int{images, 3, v.Image, v.Image})}
	if kernels {
		g.UseKernels(graph.CPUKernels)
	}
	tokens := g.Input("tokens", graph.Float, graph.Static(16, v.Width))
	image, _ := v.PromptedFeatures(g, w, g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3),
		graph.StaticDim(v.Image), graph.StaticDim(v.Image)}), clip.VisionPrompts{Tokens: tokens, Normed: true})
	loss := image.Square().Sum()
	d := orttest.Gradients(t, loss, tokens)
	o.WeightsDir = w.dir
	return step{compile(t, o, graph.Output{Name: "loss", Node: loss}, graph.Output{Name: "d", Node: d[0]}), in}
}

// BenchmarkTextStep measures a training step of the text tower at ViT-B/16 size with prompts of 16 tokens. Besides
// ns/op it reports the speed relative to the plain 77-token gradient graph ("x-plain", for one prompt), the rate of
// necessary operations ("GFLOP/s"), the rate of bare matrix products on as many rows ("GEMM-GFLOP/s") and their
// quotient ("%GEMM"), each the best of interleaved runs. In the environment, CLIP_BENCH_NOPLAIN omits the plain form
// (it takes gigabytes for 100 classes), CLIP_BENCH_PREPACK sets ort.Options.Prepack, and CLIP_BENCH_KEEP names a folder
// for graphs and weights.
func BenchmarkTextStep(b *testing.B) {
	dir := b.TempDir()
	if keep := os.Getenv("CLIP_BENCH_KEEP"); keep != "" {
		dir = keep
	}
	w := writeFormula(b, dir, clip.TextB.Shapes())
	for _, set := range []struct {
		name    string
		classes clip.NamedClasses
	}{{"cifar10", clip.CIFAR10}, {"cifar100", clip.CIFAR100}} {
		s, err := clip.NewSuffixes(set.classes.Names(), set.classes.Suffixes(),
			clip.SpecialTokens{SOS: clip.StartID}, clip.TextB.Width, embedding(clip.TextB.Width))
		goldentest.NoError(b, err)
		for _, threads := range []int{1, 2} {
			for _, prompts := range []int{1, 3} {
				b.Run(fmt.Sprintf("%s/threads=%d/prompts=%d", set.name, threads, prompts), func(b *testing.B) {
					o := ort.Options{IntraThreads: threads, Prepack: os.Getenv("CLIP_BENCH_PREPACK") != ""}
					text := clip.Text{TextArch: clip.TextB}
					cheap := textStep(b, w, s, prompts, false, true, o)
					rows := 0
					for _, ids := range s.IDs {
						rows += len(ids)
					}
					bare, bareFLOPs := gemm(b, w, "", text.Width, text.Layers, prompts*(rows+17), o)
					var plain step
					if prompts == 1 && os.Getenv("CLIP_BENCH_NOPLAIN") == "" {
						plain = textStep(b, w, s, prompts, true, false, o)
						plain.run(b)
					}
					cheap.run(b)
					bare.run(b)
					best, bestBare := math.Inf(1), math.Inf(1)
					for b.Loop() {
						best = min(best, cheap.run(b).Seconds())
						b.StopTimer()
						bestBare = min(bestBare, bare.run(b).Seconds())
						b.StartTimer()
					}
					if plain.s != nil {
						bestPlain := min(plain.run(b).Seconds(), plain.run(b).Seconds())
						b.ReportMetric(bestPlain/best, "x-plain")
					}
					rate := text.StepFLOPs(s, prompted(graph.New(), prompts, text.Width, tensor.Map{})) / best / 1e9
					bareRate := bareFLOPs / bestBare / 1e9
					b.ReportMetric(rate, "GFLOP/s")
					b.ReportMetric(bareRate, "GEMM-GFLOP/s")
					b.ReportMetric(100*rate/bareRate, "%GEMM")
				})
			}
		}
	}
}
