package methods_test

import "promptfed/federation/methodtest"

// Methods with sets of text prompts.

// grouped names FedMGP's prompts of some towers. The exchanged prompts are no part of the loss.
func grouped(towers ...string) methodtest.Names {
	var n methodtest.Names
	for _, tower := range towers {
		n.Shared = append(n.Shared, tower+"/global")
		n.Private = append(n.Private, tower+"/groups", tower+"/drawn")
		n.TurnDraw = append(n.TurnDraw, tower+"/drawn")
		n.Exchanged = append(n.Exchanged, tower+"/groups")
		if tower == "image" {
			n.Reads = []string{"pixels"}
		}
	}
	n.Frozen = func(int, int) (idle []string) {
		for _, tower := range towers {
			idle = append(idle, tower+"/global", tower+"/drawn")
		}
		return idle
	}
	return n
}

var folio = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}}

func init() {
	each := options{"tokens": 2, "init_std": 0.4, "class_specific": true}
	cases = append(cases,
		methodtest.Case{Name: "coop", Options: each, Names: alone},
		methodtest.Case{Name: "promptfl", Options: with(each, options{"position": "middle"}), Names: context},
		methodtest.Case{Name: "promptfl", Options: with(each, options{"class_average": "owners"}),
			Names: withReport(context, "class/n")},
		methodtest.Case{Name: "promptfl", With: []string{"fedprox"}, Options: each, Zero: options{"mu": 0.0},
			Names: context},
		methodtest.Case{Name: "promptfolio", Options: options{"tokens": 3, "init_std": 0.4}, Names: folio},
		methodtest.Case{Name: "promptfolio", Options: options{"tokens": 2, "theta": 1.0, "position": "front"},
			Names: folio},
		methodtest.Case{Name: "fedmgp", Options: options{"groups": 3, "init_std": 0.4, "vision_std": 0.4}, Noised: true,
			Names: grouped("text", "image")},
		methodtest.Case{Name: "fedmgp", Options: options{"tokens": 1, "groups": 2, "exchanged": 1, "vision_tokens": 0,
			"init_std": 0.4, "words": "", "tau": 0.1, "score": "features"}, Noised: true, Names: grouped("text")},
		methodtest.Case{Name: "fedmgp", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Noised: true,
			Options: options{"groups": 2, "exchanged": 1, "vision_tokens": 1}, Names: grouped("text", "image")},
		methodtest.Case{Name: "promptfolio", With: []string{"fedprox"}, Options: short, Zero: options{"mu": 0.0},
			Names: folio},
	)
	averages = append(averages, []averaging{
		{"promptfl", options{"class_specific": true}, "examples"},
		{"promptfl", options{"class_specific": true, "class_average": "owners"}, "set class_average: all"},
		{"promptfolio", nil, "examples"}, {"fedmgp", nil, "examples"},
		{"fedmgp", options{"weighting": "uniform"}, "uniform"},
	}...)
}
