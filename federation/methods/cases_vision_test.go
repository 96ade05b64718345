package methods_test

import (
	"promptfed/federation/methodtest"
)

// Methods that put prompts into the image tower. Deep prompts need backbones of equally many blocks.

var (
	seen     = methodtest.Names{Shared: []string{"prompt"}, Reads: []string{"pixels"}}
	bounded  = methodtest.Names{Shared: []string{"prompt"}, Reads: []string{"pixels"}, Draw: []string{"projector"}}
	teaching = methodtest.Names{Private: []string{"prompt"}, Reads: []string{"pixels"},
		Broadcast: []string{"hpl/logits", "hpl/n"}, Up: []string{"hpl/logits", "hpl/n"}}
	dual = dualOf("text", "image")
)

// dualOf names the tensors that pFedDC traces with attention on the prompts of some towers.
func dualOf(towers ...string) methodtest.Names {
	n := methodtest.Names{Shared: []string{"text/shared", "image/shared"}, Reads: []string{"pixels"}}
	for _, tower := range towers {
		n.Private = append(n.Private, tower+"/own")
		for _, part := range []string{"q", "k", "v", "o"} {
			n.Private = append(n.Private, "att/"+tower+"/"+part)
		}
	}
	return n
}

func dc(more options) options {
	o := options{"text_tokens": 3, "vision_tokens": 2, "init_std": 0.4, "vision_std": 0.4}
	for k, v := range more {
		o[k] = v
	}
	return o
}

func init() {
	cases = append(cases, visionCases...)
}

var visionCases = []methodtest.Case{
	{Name: "fedvpt", Options: options{"vision_tokens": 3, "vision_std": 0.4}, Names: seen},
	{Name: "fedvpt", Options: options{"vision": "pixels"}, Names: seen},
	{Name: "fedvpt", Options: options{"vision": "deep", "vision_tokens": 2, "vision_std": 0.4}, Alike: true,
		Names: seen},
	{Name: "fedvpt", With: []string{"fedprox"}, Options: options{"vision_tokens": 2}, Zero: options{"mu": 0.0},
		Names: seen},

	// The optimizer receives a part of the gradient.
	{Name: "fedpr", Options: options{"vision_tokens": 2, "vision_std": 0.4}, Alike: true, Names: bounded,
		NoDerivative: true},
	{Name: "fedpr", Options: options{"vision": "shallow", "vision_tokens": 3, "vision_std": 0.4, "ratio": 0.5},
		Names: bounded, NoDerivative: true},
	{Name: "fedpr", With: []string{"fedprox"}, Options: options{"vision_tokens": 2}, Zero: options{"mu": 0.0},
		Alike: true, Names: bounded, NoDerivative: true},

	{Name: "fedhpl", Options: options{"vision_tokens": 3, "vision_std": 0.4}, Names: teaching},
	{Name: "fedhpl", Options: options{"vision": "pixels", "weighting": "uniform",
		"temperature": 2.0, "gamma": 0.5}, Names: teaching},
	{Name: "fedhpl", Options: options{"vision": "deep", "vision_tokens": 1, "gamma": 0.0}, Alike: true,
		Names: teaching},
	{Name: "fedhpl", With: []string{"fedprox"}, Options: options{"vision_tokens": 2}, Zero: options{"mu": 0.0},
		Names: teaching},

	{Name: "pfeddc", Options: dc(nil), Names: dual},
	{Name: "pfeddc", Options: dc(options{"vision": "deep"}), Alike: true, Names: dual},
	{Name: "pfeddc", Options: dc(options{"vision": "pixels"}), Names: dual},
	{Name: "pfeddc", Options: dc(options{"attention": "text"}), Names: dualOf("text")},
	{Name: "pfeddc", Options: dc(options{"attention": "image"}), Names: dualOf("image")},
	{Name: "pfeddc", Options: dc(options{"attention": "none"}), Names: dualOf()},
	{Name: "pfeddc", With: []string{"fedprox"}, Options: dc(nil), Zero: options{"mu": 0.0}, Names: dual},
}
