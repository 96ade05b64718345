package methods_test

import "promptfed/federation/methodtest"

// Methods with sets of text prompts.

var folio = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}}

func init() {
	each := options{"tokens": 2, "init_std": 0.4, "class_specific": true}
	cases = append(cases,
		methodtest.Case{Name: "coop", Options: each, Names: alone},
		methodtest.Case{Name: "promptfl", Options: with(each, options{"position": "middle"}), Names: context},
		methodtest.Case{Name: "promptfl", Options: with(each, options{"class_average": "owners"}),
			Names: reporting(context, "class/n")},
		methodtest.Case{Name: "promptfl", With: []string{"fedprox"}, Options: each, Zero: options{"mu": 0.0},
			Names: context},
		methodtest.Case{Name: "promptfolio", Options: options{"tokens": 3, "init_std": 0.4}, Names: folio},
		methodtest.Case{Name: "promptfolio", Options: options{"tokens": 2, "theta": 1.0, "position": "front",
			"renorm": true, "start": "own"}, Names: folio},
		methodtest.Case{Name: "promptfolio", With: []string{"fedprox"}, Options: short, Zero: options{"mu": 0.0},
			Names: folio},
	)
	averages = append(averages, []averaging{
		{"promptfl", options{"class_specific": true}, "examples"},
		{"promptfl", options{"class_specific": true, "class_average": "owners"}, "set class_average: all"},
		{"promptfolio", nil, "examples"},
	}...)
}
