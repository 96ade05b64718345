package methods_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
)

type options = methodtest.Options

var (
	context = methodtest.Names{Shared: []string{"ctx"}}
	alone   = methodtest.Names{Private: []string{"ctx"}}
	two     = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}, Draw: []string{"projector"}}

	memory   = methodtest.Names{Shared: []string{"ctx"}, Memory: true}
	adapter  = methodtest.Names{Shared: []string{"adapter/1/w", "adapter/1/b", "adapter/2/w", "adapter/2/b"}}
	experts  = methodtest.Names{Shared: []string{"general"}, Private: []string{"expert"}}
	Entropic = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}, Reads: []string{"patches"}}
)

// appr names the tensors that FedAPPR traces. The server keeps every average made after the warm-up.
func appr(warmup int) methodtest.Names {
	return methodtest.Names{Shared: []string{"ctx"}, Broadcast: []string{"fedappr/w1", "fedappr/w2"},
		ServerState: func(round int) (out []string) {
			for r := warmup; r <= round; r++ {
				out = append(out, fmt.Sprintf("fedappr/pool/%06d", r))
			}
			return out
		}}
}

// apprOver names the tensors of a base method and of FedAPPR's terms over it.
func apprOver(base methodtest.Names, warmup int) methodtest.Names {
	n := appr(warmup)
	base.Broadcast, base.ServerState = n.Broadcast, n.ServerState
	return base
}

// generator names FedTPG's parameters.
func generator(depth int) (n methodtest.Names) {
	n.Shared = []string{"generator/queries", "generator/cross/norm_kv/gain", "generator/cross/norm_kv/bias"}
	for i := range depth + 1 {
		at := "generator/cross"
		if i > 0 {
			at = fmt.Sprintf("generator/self%d", i)
		}
		for _, linear := range []string{"q", "k", "v", "o", "ff/in", "ff/out"} {
			n.Shared = append(n.Shared, at+"/"+linear+"/w", at+"/"+linear+"/b")
		}
		for _, norm := range []string{"norm", "ff/norm"} {
			n.Shared = append(n.Shared, at+"/"+norm+"/gain", at+"/"+norm+"/bias")
		}
	}
	return n
}

var lowRank = methodtest.Names{Shared: []string{"sigma"}, Private: []string{"u", "v"}}

var apprOff = options{"lambda_a": 0.0, "lambda_r": 0.0, "view": "base"}

func pha(more options) options {
	o := options{"global_tokens": 3, "local_tokens": []int{2, 5, 3}, "ratio": 0.5, "init_std": 0.4}
	for k, v := range more {
		o[k] = v
	}
	return o
}

// pool names Powder's parameters, and the uploaded counts if prompts are weighted by their use.
func pool(prompts int, use bool) methodtest.Names {
	n := methodtest.Names{Private: []string{"keys"}}
	for i := range prompts {
		n.Shared = append(n.Shared, fmt.Sprint("pool/", i))
	}
	if use {
		n.Up = []string{"powder/use"}
	}
	return n
}

var cases = []methodtest.Case{
	{Name: "zeroshot"},
	{Name: "promptfl", Options: options{"tokens": 3, "init_std": 0.4}, Names: context},
	{Name: "promptfl", Options: options{"tokens": 2, "position": "middle"}, Names: context},
	{Name: "promptfl", Options: options{"tokens": 1, "position": "front"}, Names: context},
	{Name: "gptfl", Options: options{"tokens": 3, "init_std": 0.4}, Names: context},
	{Name: "coop", Options: options{"tokens": 3, "init_std": 0.4}, Names: alone},

	{Name: "fedpha", Options: pha(nil), Names: two},
	{Name: "fedpha", Options: pha(options{"projector": "alg1", "pull": "mean", "eot": "longest", "svd_every": "step"}),
		Names: two},
	{Name: "fedpha", Options: pha(options{"projector": "def1", "svd_every": "round"}), Names: two},
	{Name: "fedpha", Options: pha(options{"projector": "exact-null", "projector_grad": "through", "eot": "longest",
		"svd_every": "step"}), Names: two},
	{Name: "fedpha", Options: pha(options{"projector": "code", "projector_grad": "through", "svd_every": "epoch",
		"pull": "mean"}), Names: two},
	{Name: "fedpha", Options: pha(options{"projector": "eq9", "projector_grad": "through", "alpha": 0.1,
		"svd_every": "step"}), Names: two,
		NoDerivative: true},

	{Name: "fedappr", Options: options{"tokens": 3, "warmup": 0, "init_std": 0.4, "disc_lr": 0.5}, Names: appr(0)},
	{Name: "fedappr", Options: options{"tokens": 3, "warmup": 1, "disc_steps": 3,
		"hidden": 2, "lambda_a": 0.5},
		Names: appr(1)},
	{Name: "fedappr", Options: options{"tokens": 2, "warmup": 0, "lambda_r": 0}, Names: appr(0)},
	{Name: "fedappr", Options: options{"tokens": 2, "lambda_a": 0, "lambda_r": 1, "warmup": 0}, Names: context},

	{Name: "sdfed", Options: options{"init_std": 0.4, "global_tokens": 3, "local_tokens": []int{2, 5, 3}}, Names: two},
	{Name: "sdfed", Options: options{"init_std": 0.4, "global_tokens": 3, "projector": "eq9", "svd_every": "step"},
		Names: two},

	{Name: "zeroshot", Options: options{"template": "pets"}},
	{Name: "zeroshot", Options: options{"ensemble": []string{"imagenet-7", "a drawing of {}"},
		"template": "{} texture."}},
	{Name: "fedpgp", Options: options{"tokens": 3, "rank": 2, "init_std": 0.4}, Names: lowRank},
	{Name: "fedpgp", Options: options{"tokens": 2, "positive": "code", "mu": 0.3, "temp": 0.1}, Names: lowRank},
	{Name: "fedpgp", Options: options{"tokens": 2, "mu": 0}, Names: lowRank},
	{Name: "fedtpg", Options: options{"tokens": 2, "heads": 2, "mult": 1, "init_std": 0.4}, Alike: true,
		Names: generator(0)},
	{Name: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1}, Alike: true,
		Names: generator(0)},
	{Name: "fedtpg", Options: options{"tokens": 3, "heads": 3, "mult": 1, "depth": 1,
		"weighting": "examples"}, Alike: true,
		Names: generator(1)},
	{Name: "fedpgp", With: []string{"appr"}, Options: options{"tokens": 3, "warmup": 0, "disc_lr": 0.5},
		Zero: apprOff, Names: apprOver(lowRank, 0)},

	{Name: "promptfl", With: []string{"appr"}, Options: options{"tokens": 3, "warmup": 1, "init_std": 0.4,
		"disc_lr": 0.5}, Zero: apprOff, Names: appr(1)},
	{Name: "fedpha", With: []string{"appr"}, Options: pha(options{"projector": "exact-null", "warmup": 0,
		"disc_lr": 0.5}), Zero: apprOff,
		Names: apprOver(two, 0)},
	{Name: "fedotp", With: []string{"appr"}, Options: options{"tokens": 2, "warmup": 0, "disc_lr": 0.5, "iters": 5},
		Zero: apprOff, NoDerivative: true,
		Names: apprOver(Entropic, 0)},
	{Name: "pfeddc", With: []string{"appr"}, Options: dc(options{"warmup": 0, "disc_lr": 0.5}),
		Zero: apprOff, Names: apprOver(dual, 0)},
	{Name: "sdfed", With: []string{"appr", "fedprox"}, Options: options{"warmup": 0, "view": "base"},
		Zero: options{"mu": 0.0}, Names: apprOver(two, 0)},

	{Name: "fedclip", Names: adapter, Alike: true},
	{Name: "fedclip", Options: options{"loss": "ce", "weighting": "examples"},
		Names: adapter, Alike: true},
	{Name: "fedclip", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: adapter, Alike: true},
	{Name: "pfedprompt", Options: options{"tokens": 3, "init_std": 0.4}, Names: memory},
	{Name: "pfedprompt", Options: options{"tokens": 2, "beta": 2.0,
		"position": "front"}, Names: memory},
	{Name: "pfedprompt", With: []string{"fedprox"}, Options: options{"tokens": 2}, Zero: options{"mu": 0.0},
		Names: memory},
	{Name: "powder", Options: options{"tokens": 2, "prompts": 3, "init_std": 0.4}, Names: pool(3, true)},
	{Name: "powder", Options: options{"tokens": 1, "prompts": 2, "weighting": "examples", "sharpness": 1.0},
		Names: pool(2, false)},
	{Name: "powder", Options: options{"tokens": 2, "prompts": 2, "sharpness": 0.0},
		Names: methodtest.Names{Shared: []string{"pool/0", "pool/1"}}},
	{Name: "powder", With: []string{"fedprox"}, Options: options{"prompts": 2}, Zero: options{"mu": 0.0}, Names: pool(2,
		true)},
	{Name: "uopp", Options: options{"tokens": 3, "init_std": 0.4}, Names: experts},
	{Name: "uopp", Options: options{"tokens": 2, "position": "middle"}, Names: experts},
	{Name: "uopp", With: []string{"fedprox"}, Options: options{"tokens": 2}, Zero: options{"mu": 0.0}, Names: experts},
	// The plan is a constant for gradients, so gradients are not the loss's derivatives.
	{Name: "fedotp", Options: options{"tokens": 3, "init_std": 0.4}, Names: Entropic, NoDerivative: true},
	{Name: "fedotp", Options: options{"tokens": 2, "stop": "pair", "eps": 0.01, "position": "front"}, Names: Entropic,
		NoDerivative: true},
	{Name: "fedotp", Options: options{"tokens": 2, "transport": "balanced", "iters": 3, "threshold": 0.0},
		Names: Entropic, NoDerivative: true},
	{Name: "fedotp", With: []string{"fedprox"}, Options: options{"tokens": 2}, Zero: options{"mu": 0.0},
		Names: Entropic, NoDerivative: true},

	{Name: "promptfl", With: []string{"fedprox"}, Options: options{"mu": 2.0}, Zero: options{"mu": 0.0},
		Names: context},
	{Name: "coop", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: alone},
	{Name: "fedpha", With: []string{"fedprox"}, Options: pha(options{"projector": "exact-null"}),
		Zero: options{"mu": 0.0}, Names: two},
	{Name: "fedappr", With: []string{"fedprox"}, Options: options{"warmup": 0, "tokens": 2}, Zero: options{"mu": 0.0},
		Names: appr(0)},
	{Name: "zeroshot", With: []string{"fedprox"}, Zero: options{"mu": 0.0}},

	{Name: "promptfl", With: []string{"ggtpc"}, Options: options{"tokens": 3, "min_count": 1}, Zero: noCalibration,
		Names: ggtpc(context, "cov", false, shapes...)},
	{Name: "promptfl", With: []string{"ggtpc"}, Options: options{"tokens": 2, "stats": "lowrank", "rank": 2,
		"min_count": 2, "axes": 2, "renormalise": false, "sampling": "sample", "estimate": "round"},
		Zero: noCalibration, Loose: true, Names: ggtpc(context, "factors", true, shapes...)},
	{Name: "coop", With: []string{"ggtpc"}, Options: options{"tokens": 2, "prototypes": true, "min_count": 1,
		"strength": 0.0}, Zero: noCalibration,
		Names: ggtpc(alone, "cov", false, places...)},
	{Name: "fedpha", With: []string{"ggtpc"}, Options: pha(options{"projector": "exact-null", "prototypes": true,
		"min_count": 1,
		"sampling":  "none"}), Zero: noCalibration, Names: ggtpc(two, "cov", false, slices.Concat(shapes, places)...)},
	{Name: "fedotp", With: []string{"ggtpc"}, Options: options{"tokens": 3, "min_count": 1, "prototypes": true,
		"iters": 10}, Zero: noCalibration, NoDerivative: true,
		Names: ggtpc(Entropic, "cov", false, slices.Concat(shapes, places)...)},
	{Name: "promptfl", With: []string{"ggtpc", "fedprox"}, Options: options{"tokens": 2, "min_count": 1},
		Zero:  options{"mu": 0.0},
		Names: ggtpc(context, "cov", false, shapes...)},
}

// The heap is a few megabytes. By default Go would collect garbage hundreds of times a second.
func init() { debug.SetGCPercent(1600) }

// TestMethods also checks that a GPU can run all of a graph of fixed sizes.
func TestMethods(t *testing.T) {
	var graphs, rounded atomic.Int64 // of methodtest.Case.gradients
	ort.LowerPrecision = func(m *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
		out := onnxtest.LowerConstants(m, low)
		if graphs.Add(1); len(out.Graph.Node) > len(m.Graph.Node) {
			rounded.Add(1)
		}
		return out
	}
	t.Cleanup(func() {
		if rounded.Load() < graphs.Load()/2 {
			t.Errorf("products are rounded in %d of %d graphs", rounded.Load(), graphs.Load())
		}
	})
	orttest.CheckOnDevice(t)
	differences := roundedByFamily(t)
	tried := map[string]bool{} // without make soak, one case of a method or wrapper runs all checks
	for _, c := range cases {
		last := append([]string{c.Name}, c.With...)[len(c.With)]
		c.Sampled, tried[last] = tried[last] && !busytest.Soak(), true
		c.Rounded = differences(c.Name)
		t.Run(c.Label(), func(t *testing.T) {
			t.Parallel()
			methodtest.Run(t, c)
		})
	}
}

func TestEveryMethodHasACase(t *testing.T) {
	for _, e := range methods.Table() {
		if !slices.ContainsFunc(cases, func(c methodtest.Case) bool {
			return c.Name == e.Name && len(c.With) == 0 || slices.Contains(c.With, e.Name)
		}) {
			t.Errorf("%s has no case in the suite", e.Name)
		}
	}
}
