package methods_test

import (
	"slices"

	"promptfed/federation/methodtest"
)

// Federated prompt learners of the years 2024 and 2025.

var both = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}, Draw: []string{"dpfpl/v0"}}

var keyed = methodtest.Names{Shared: []string{"ctx", "query"}, Broadcast: []string{"apt/keys", "apt/domains"}}

// traits are attributes of the toy's classes.
var traits = map[string][]string{"ant": {"six legs", "feelers"}, "bee": {"wings", "a sting"},
	"cat": {"whiskers", "a tail"}, "dog": {"a snout", "paws"}}

// fedMVPNames names the parameters of FedMVP's network, and the low-rank changes that it trains alone from round 2 on.
func fedMVPNames(lora bool) (n methodtest.Names) {
	for _, layer := range []string{"proj", "q", "k", "v", "o", "ff/in", "ff/out"} {
		n.Shared = append(n.Shared, "former/"+layer+"/w", "former/"+layer+"/b")
	}
	for _, norm := range []string{"norm", "norm_kv", "ff/norm"} {
		n.Shared = append(n.Shared, "former/"+norm+"/gain", "former/"+norm+"/bias")
	}
	n.Reads = []string{"pixels"}
	if !lora {
		return n
	}
	network, changes := n.Shared, []string{"lora/q/a", "lora/q/b", "lora/k/a", "lora/k/b", "lora/v/a", "lora/v/b"}
	n.Shared, n.Broadcast = append(slices.Clone(network), changes...), []string{"mvp/lora"}
	n.Frozen = func(round, _ int) []string {
		if round == 0 {
			return changes
		}
		return network
	}
	return n
}

func init() {
	noisy := []string{"dpfpl/u", "dpfpl/v"}
	fpl := func(more options) options { return with(options{"tokens": 3, "rank": 2, "init_std": 0.4}, more) }
	cases = append(cases,
		// All of the gradient passes through factors of full rank: the method's gradient is the derivative of the loss.
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"rank": 3, "clip": 0.0}), Names: both},
		methodtest.Case{Name: "dpfpl", Options: fpl(nil), Names: both, NoDerivative: true},
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"clip": 0.1, "noise": 0.2, "noisy": "all", "steps": 4,
			"weighting": "examples"}), Names: withDraws(both, append(noisy, "dpfpl/global"), nil, nil),
			NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: both,
			NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"dp"}, Options: fpl(options{"dpfpl": options{"clip": 0.2,
			"noise": 0.1}, "dp": options{"clip": 0.1, "noise": 0.2, "where": "client", "least": 0.5}}),
			Names: withWrapper(withDraws(both, noisy, prefixed(both, "dp"), nil),
				methodtest.Names{Broadcast: []string{"dp/clients"}}, nil, []string{"dp/released"}),
			Noised: true, NoDerivative: true},

		methodtest.Case{Name: "fedapt", Options: options{"tokens": 3, "init_std": 0.4}, Alike: true, Names: keyed},
		methodtest.Case{Name: "fedapt", Options: options{"tokens": 2, "init_std": 0.4, "domains": 2, "assign": "scores",
			"class_specific": true, "temp": 0.5, "weight": 0.3, "position": "front"}, Alike: true, Names: keyed},
		methodtest.Case{Name: "fedapt", With: []string{"fedprox"}, Options: options{"assign": "scores"},
			Zero: options{"mu": 0.0}, Alike: true, Names: keyed},

		methodtest.Case{Name: "fedmvp", Options: options{"heads": 2, "mult": 1, "attributes": traits}, Alike: true,
			Names: fedMVPNames(false)},
		// Low-rank changes train alone from lora_round on; the rest of the network is frozen.
		methodtest.Case{Name: "fedmvp", Options: options{"heads": 4, "mult": 2, "tokens": 1, "rank": 2,
			"lora_round": 2, "templates": []string{"a {}", "the {}."}}, Alike: true, Names: fedMVPNames(true),
			NoDerivative: true},
		methodtest.Case{Name: "fedmvp", With: []string{"fedprox"}, Options: options{"mult": 1,
			"weighting": "examples"}, Zero: options{"mu": 0.0}, Alike: true, Names: fedMVPNames(false)},
	)
}
