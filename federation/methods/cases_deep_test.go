package methods_test

import (
	"strings"

	"promptfed/federation/methodtest"
)

// Methods with prompts in later blocks, with low-rank changes of the towers, and with a prompt for each image.

var (
	known    = methodtest.Names{Shared: []string{"ctx"}}
	everyone = methodtest.Names{Shared: []string{"text/prompt", "text/deep", "image/prompt", "image/deep"},
		Reads: []string{"pixels"}}
	coupled = methodtest.Names{Shared: []string{"text/prompt", "couple/w", "couple/b", "text/deep", "couple/deep/w",
		"couple/deep/b"}, Reads: []string{"pixels"}}
	conditional = methodtest.Names{Shared: []string{"ctx", "meta/1/w", "meta/1/b", "meta/2/w", "meta/2/b"}}
)

var (
	transported = methodtest.Names{Shared: []string{"prompts"}, Reads: []string{"patches"}}
	distributed = methodtest.Names{Shared: []string{"prompts"}}
)

// gaussianMean adds the mean that PromptSRC's server keeps, and of how many rounds it is.
func gaussianMean(n methodtest.Names) methodtest.Names {
	n.ServerState = func(int) []string { return append(prefixed(n, "gpa"), "gpa rounds") }
	return n
}

// withPrivate makes some of the shared parameters private.
func withPrivate(n methodtest.Names, private ...string) methodtest.Names {
	out := n
	out.Shared = nil
	for _, name := range n.Shared {
		kept := false
		for _, p := range private {
			kept = kept || strings.HasPrefix(name, p) || strings.HasSuffix(name, p)
		}
		if kept {
			out.Private = append(out.Private, name)
		} else {
			out.Shared = append(out.Shared, name)
		}
	}
	return out
}

// adapters names pFedMMA's parameters in some towers.
func adapters(towers ...string) methodtest.Names {
	n := methodtest.Names{Shared: []string{"mid/w", "mid/b"}}
	for _, tower := range towers {
		for _, layer := range []string{"/down/w", "/down/b", "/up/w", "/up/b"} {
			n.Private = append(n.Private, tower+layer)
		}
		if tower == "image" {
			n.Reads = []string{"pixels"}
		}
	}
	return n
}

// ranks names low-rank changes of some maps, TOWER/MAP.
func ranks(reads []string, sites ...string) methodtest.Names {
	n := methodtest.Names{Reads: reads}
	for _, s := range sites {
		n.Shared = append(n.Shared, s+"/a", s+"/b")
	}
	return n
}

var textSites = []string{"text/q", "text/k", "text/v", "text/out", "text/up", "text/down", "text/head"}

func init() {
	cases = append(cases, deepCases...)
}

func deepOptions(more options) options {
	o := options{"tokens": 3, "words": "", "init_std": 0.4, "vision_tokens": 2, "deep_std": 0.4}
	for k, v := range more {
		o[k] = v
	}
	return o
}

var deepCases = []methodtest.Case{
	{Name: "ivlp", Options: deepOptions(nil), Alike: true, Names: everyone},
	{Name: "ivlp", Options: options{"tokens": 2, "vision_tokens": 1, "depth": 2, "vision_depth": 2}, Alike: true,
		Names: everyone},
	{Name: "ivlp", Options: deepOptions(options{"depth": 1, "vision_depth": 1, "insert": "fedtpg"}),
		Names: methodtest.Names{Shared: []string{"text/prompt", "image/prompt"}, Reads: []string{"pixels"}}},
	{Name: "ivlp", Options: deepOptions(options{"depth": 1, "vision_depth": 0}),
		Names: methodtest.Names{Shared: []string{"text/prompt"}}},
	{Name: "ivlp", With: []string{"fedprox"}, Options: options{"tokens": 2}, Zero: options{"mu": 0.0}, Alike: true,
		Names: everyone},

	{Name: "maple", Options: options{"tokens": 3, "words": "", "init_std": 0.4, "deep_std": 0.4}, Alike: true,
		Names: coupled},
	{Name: "maple", Options: options{"depth": 2}, Alike: true, Names: coupled},
	{Name: "maple", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Alike: true, Names: coupled},

	{Name: "kgcoop", Options: options{"tokens": 3, "init_std": 0.4}, Names: known},
	{Name: "kgcoop", Options: options{"tokens": 2, "words": "", "init_std": 0.4, "template": "pets"}, Names: known},
	{Name: "kgcoop", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: known},

	// The optimizer receives a part of the gradient.
	{Name: "prograd", Options: options{"tokens": 5, "init_std": 0.4}, Names: known, NoDerivative: true},
	{Name: "prograd", Options: options{"tokens": 2, "init_std": 0.4, "variant": "add", "tau": 2.0, "lambda": 0.7},
		Names: known},
	{Name: "prograd", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: known, NoDerivative: true},

	{Name: "cocoop", Options: options{"init_std": 0.4, "reduce": 2}, Alike: true, Names: conditional},
	{Name: "cocoop", Options: options{"tokens": 2, "words": "a photo of", "init_std": 0.4, "reduce": 3}, Alike: true,
		Names: conditional},
	{Name: "cocoop", With: []string{"fedprox"}, Options: options{"reduce": 2}, Zero: options{"mu": 0.0}, Alike: true,
		Names: conditional},

	{Name: "promptsrc", Options: deepOptions(options{"text_weight": 2.0, "image_weight": 2.0,
		"ensemble": []string{"a {}.", "the {}."}}), Alike: true,
		Names: gaussianMean(everyone)},
	{Name: "promptsrc", Options: deepOptions(options{"depth": 1, "vision_depth": 1, "gpa": "none", "image_weight": 0.0,
		"ensemble": []string{"imagenet-7", "a {} texture."}}), Names: methodtest.Names{Shared: []string{"text/prompt",
		"image/prompt"}, Reads: []string{"pixels"}}}, {Name: "promptsrc",
		Options: deepOptions(options{"depth": 2, "vision_depth": 0, "kl_weight": 0.0}),
		Names:   gaussianMean(methodtest.Names{Shared: []string{"text/prompt", "text/deep"}})},
	{Name: "promptsrc", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Alike: true,
		Names: gaussianMean(everyone)},

	// The plan is a constant for gradients, so gradients are not the loss's derivatives.
	{Name: "plot", Options: options{"n": 3, "tokens": 2, "init_std": 0.4}, Names: transported, NoDerivative: true},
	{Name: "plot", Options: options{"n": 2, "tokens": 1, "eps": 0.01, "pooled": true, "position": "middle"},
		Names: transported, NoDerivative: true},
	{Name: "plot", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: transported, NoDerivative: true},

	// Without the similarity term, whose absolute values have kinks within the steps of the differences.
	{Name: "proda", Options: options{"n": 4, "tokens": 2, "init_std": 0.4, "lambda": 0.0}, Names: distributed},
	// Every step draws other prompts.
	{Name: "proda", Options: options{"n": 8, "tokens": 2, "init_std": 0.4}, Names: distributed, NoDerivative: true},

	{Name: "proda", Options: options{"n": 3, "tokens": 1, "init_std": 0.4, "position": "end", "together": 2,
		"lambda": 0.0}, Names: distributed, NoDerivative: true},

	// Differences cross the kinks of ReLU, and rescaled gradients are no derivatives: only PyTorch checks both.
	{Name: "pfedmma", Options: options{"rank": 6, "alpha": 0.2, "blocks": 1, "grad_rescale": false}, Alike: true,
		Names: adapters("text", "image"), NoDerivative: true},
	{Name: "pfedmma", Options: options{"rank": 6, "towers": "text", "blocks": 2, "template": "pets"},
		Names: adapters("text"), NoDerivative: true},
	{Name: "pfedmma", Options: options{"rank": 6, "towers": "image"}, Alike: true, Names: adapters("image"),
		NoDerivative: true},
	{Name: "pfedmma", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Alike: true,
		Names: adapters("text", "image"), NoDerivative: true},

	{Name: "fedlora", Options: options{"alpha": 1.0}, Alike: true, Names: ranks(nil, textSites...)},
	{Name: "fedlora", Options: options{"towers": "image", "maps": []string{"q", "v"}, "loss": "ce",
		"rank": 3, "alpha": 1.0}, Alike: true, Names: ranks([]string{"pixels"}, "image/q", "image/v")},
	{Name: "fedlora", Options: options{"towers": "both", "maps": []string{"v", "head"}, "loss": "ce", "alpha": 1.0,
		"template": "pets"}, Alike: true,
		Names: ranks([]string{"pixels"}, "text/v", "text/head", "image/v", "image/head")},
	{Name: "fedlora", Options: options{"maps": []string{"q", "up"}, "alpha": 1.0},
		Names: ranks(nil, "text/q", "text/up")},
	{Name: "fedlora", With: []string{"fedprox"}, Options: options{"maps": []string{"q"}, "alpha": 1.0},
		Zero: options{"mu": 0.0}, Alike: true, Names: ranks(nil, "text/q")},
}
