package methods_test

import (
	"embed"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// onFile returns options with one of methodtest.ONNXFiles, or with torch/NAME, the same method written in PyTorch
// (tools/golden/method_file.py).
func onFile(name string) options {
	if !strings.HasPrefix(name, "torch/") {
		return options{"file": methodtest.ONNXOption(name)}
	}
	b, err := fromTorch.ReadFile("testdata/" + name + ".onnx")
	if err != nil {
		panic(err)
	}
	return options{"file": string(layer.EmbedFile("torch.onnx", b))}
}

//go:embed testdata/torch
var fromTorch embed.FS

func init() {
	state := methodtest.Names{Shared: []string{"ctx"}, Broadcast: []string{"file/c"}, Up: []string{"file/dc"},
		State: func(round int) []string {
			if round == 0 {
				return nil
			}
			return []string{"file/c"}
		}}
	cases = append(cases,
		methodtest.Case{Name: "onnx", Options: options{"tokens": 3}, Names: context},
		methodtest.Case{Name: "onnx", With: []string{"fedprox"}, Options: options{"tokens": 3},
			Zero: options{"mu": 0.0}, Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("promptfl-l2"), Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("fedprox"), Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("torch/fedprox"), Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("fedotp"), Names: Entropic, NoDerivative: true},
		methodtest.Case{Name: "onnx", Options: onFile("fedotp-unrolled"), Names: Entropic, NoDerivative: true},
		methodtest.Case{Name: "onnx", Options: with(onFile("fedpha"), options{"private_tokens": []int{2, 5, 3}}),
			Names: two},
		methodtest.Case{Name: "onnx", Options: onFile("scaffold"), Names: state},
		methodtest.Case{Name: "onnx", Options: onFile("inputs"), Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("kgcoop-words"), Names: context},
		methodtest.Case{Name: "onnx", Options: onFile("per-image"), Alike: true,
			Names: methodtest.Names{Shared: []string{"ctx", "meta"}}},
		// New noise in every step, and a loss that falls with them.
		methodtest.Case{Name: "onnx", Options: onFile("noise"), NoDerivative: true,
			Names: methodtest.Names{Shared: []string{"ctx"}, Draw: []string{"file/eps", "file/level/x"}}},
	)
}

// twinOfFile is the same method in Go, or as another file.
type twinOfFile struct {
	base    string
	with    []string
	options options
	train   spec.Training // of the twin, where it differs
}

// A method from a file, written with the graph package or in PyTorch, has the gradients, in every step of five rounds,
// and the prompts of the same method in Go, up to 1e-5 of a tensor's largest element.
func TestFilesAreTheirTwins(t *testing.T) {
	trains := func(change func(*optim.Config)) spec.Training {
		s := methodtest.TwoEpochs
		if change != nil {
			change(&s.Optim)
		}
		return s
	}
	three, twins := options{"tokens": 3, "init_std": 0.4}, map[string]twinOfFile{}
	for file, twin := range map[string]twinOfFile{
		"promptfl": {base: "promptfl"},
		"promptfl-l2": {base: "promptfl", options: three,
			train: trains(func(o *optim.Config) { o.WeightDecay += methodtest.L2 })},
		"fedprox": {base: "promptfl", with: []string{"fedprox"},
			options: with(three, options{"mu": float64(methodtest.ProxMu)})},
		"fedotp": {base: "fedotp", options: three},
		"kgcoop": {base: "kgcoop", options: with(three, options{"lambda": float64(methodtest.Knowledge),
			"words": ""})},
		"kgcoop-words": {base: "kgcoop", options: with(three, options{"lambda": float64(methodtest.Knowledge)})},
		"fedotp-unrolled": {base: "fedotp", options: with(three, options{"iters": methodtest.UnrolledSteps,
			"threshold": 0.0})},
		"fedpha": {base: "fedpha", options: options{"global_tokens": 3, "local_tokens": []int{2}, "ratio": 0.5,
			"init_std": 0.4, "projector": "exact-null", "svd_every": "step"}},
		"scaffold": {base: "promptfl", with: []string{"scaffold"}, options: with(three, options{"control": "path"}),
			train: trains(func(o *optim.Config) { o.Momentum, o.WeightDecay = 0, 0 })},
	} {
		twins[file] = twin
		twins["torch/"+file] = twin
	}
	for file := range methodtest.ONNXFiles { // files without a twin in Go are those of files in PyTorch
		if twins[file].base == "" {
			twins["torch/"+file] = twinOfFile{base: "onnx", options: onFile(file)}
		}
	}
	for file, twin := range twins {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			train, file := trains(nil), strings.TrimPrefix(file, "torch/")
			if file == "scaffold" { // with momentum, control variates of the path diverge
				train = twin.train
			}
			got := methodtest.Traced(t, "onnx", nil, onFile(file), 5, train)
			if twin.train.Epochs > 0 {
				train = twin.train
			}
			want := methodtest.Traced(t, twin.base, twin.with, twin.options, 5, train)
			compared := 0
			for name, w := range want {
				kind := strings.Split(name, "/")
				if !strings.Contains(name, "/grad/") && !strings.Contains(name, "/after/") &&
					!strings.Contains(name, "/merged/") && !strings.Contains(name, "eval/logits") ||
					kind[len(kind)-2] == "grad" && file == "promptfl-l2" { // there the optimizer adds the decay
					continue
				}
				g := got[name]
				if g == nil || !g.SameShape(w) {
					t.Fatalf("%s is %v, in Go %v", name, g, w)
				}
				if d := furthest(g, w); !(d <= 1e-5*w.MaxAbs()) {
					t.Errorf("%s differs by %g of %g", name, d, w.MaxAbs())
				}
				compared++
			}
			if compared < 50 {
				t.Errorf("only %d tensors were compared", compared)
			}
		})
	}
}

func furthest(a, b *tensor.Tensor) (d float64) {
	for i, v := range a.Data {
		d = math.Max(d, math.Abs(float64(v-b.Data[i])))
	}
	return d
}

// Secure aggregation and differential privacy take a file that declares that the mean is enough, and no other.
func TestFilesThatNeedTheMean(t *testing.T) {
	p := fromfile.Parameter{Name: "p", Owner: "shared", Tensor: fromfile.Tensor{Shape: []fromfile.Size{{Sym: "D"}}}}
	meta := fromfile.Metadata{Parameters: []fromfile.Parameter{p}}
	undeclared, err := methodtest.ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
		hand := g.Input("hand", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")})
		z := x.Mul(g.Input("param/p", graph.Float, graph.Shape{graph.Sym("D")})).MatMul(hand.Transpose(1, 0))
		loss := z.Mean().Reshape(1) // one element is a scalar
		return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: loss}}
	})
	goldentest.NoError(t, err)
	for want, o := range map[string]options{"": onFile("fedpha"), "needs every client's upload": onFile("scaffold"),
		`add "mean": "examples"`: {"file": string(layer.EmbedFile("m.onnx", undeclared))}} {
		m := methodtest.Build(t, "onnx", nil, o)
		mean, _, err := methods.AveragedUploads(m)
		if want == "" && (err != nil || mean != "examples") || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q, %v; want %q", mean, err, want)
		}
		_, err = methods.Build("onnx", []string{"dp"}, with(o, options{"noise": 0.1, "delta": 0.001}))
		if (err == nil) != (want == "") {
			t.Errorf("under differential privacy: %v; want %q", err, want)
		}
	}
}
