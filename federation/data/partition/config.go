package partition

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/runtime/convert"
)

// Config describes how examples are split among clients. The tags are the keys under `partition:`.
type Config struct {
	Kind     string   `config:"kind" help:"kind of partition, see promptfed list partitions"`
	Clients  int      `config:"clients" in:"1.." help:"number of clients"`
	Beta     float64  `config:"beta" help:"concentration of Dirichlet distributions: smaller is more skewed"`
	MinSize  int      `config:"min_size" help:"Dirichlet kinds: smallest number of train and test examples of a client"`
	Uncap    bool     `config:"uncap" help:"Dirichlet kinds: clients that already have their share may get more"`
	Fill     bool     `config:"fill"`
	Classes  int      `config:"classes" help:"kinds classes and labeluni: number of classes of a client"`
	Repeat   float64  `config:"repeat" help:"kind pathological: share of classes that all clients hold, such as 0.1"`
	FineBeta float64  `config:"fine_beta" help:"kind pachinko: concentration over the classes of a superclass"`
	Share    float64  `config:"share" help:"kind sample: share of every list that a client holds, such as 0.1"`
	LeaveOut []string `config:"leave_out" help:"domains that are held out from all clients"`
	Code     bool     `config:"code"`
	Seed     uint64   `config:"seed"`
}

// LongHelp implements configtags.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"fill": "Dirichlet kinds: if no draw gives every client min_size examples, examples move from the " +
			"largest clients to the smallest",
		"code": "use the public code's algorithm and random draws, with its peculiarities (docs/partitions.md)",
		"seed": "seed of the partition; 0: the experiment's, or with code the seed of the public code (2023, 12345, 0)",
	}
}

// Defaults returns the defaults of the section. FedPHA's code uses min_size 10 on CIFAR and 2 inside domains.
func Defaults() Config {
	return Config{Kind: "iid", Clients: 10, Beta: 0.5, MinSize: 2, Classes: 2, FineBeta: 10, Share: 0.1}
}

// checkFits returns an error if no partition can satisfy MinSize.
func (j *job) checkFits() error {
	first, last := j.lists[0], j.lists[len(j.lists)-1]
	if most := min(len(first.index), len(last.index)); j.MinSize > most/j.Clients {
		return fmt.Errorf("%d clients with %d examples each do not fit in %d training and %d test examples: lower "+
			"partition.clients or partition.min_size", j.Clients, j.MinSize, len(first.index), len(last.index))
	}
	return nil
}

// check checks everything that does not depend on random draws.
func check(config Config, set *data.Set) (Kind, error) {
	names := convert.Slice(kinds, func(k Kind) string { return k.Name })
	if err := data.OneOf("partition.kind", config.Kind, names...); err != nil {
		return Kind{}, err
	}

	kind := kinds[slices.Index(names, config.Kind)]
	examples := 0
	for _, sp := range set.Splits() {
		examples += len(*sp.Examples)
		for _, e := range *sp.Examples {
			if e.Label < 0 || e.Label >= len(set.Classes) {
				return kind, configtags.KeyErrorf("partition", "%s has label %d, but the set has %d classes", e.Name(),
					e.Label, len(set.Classes))
			}
		}
	}

	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	is := func(kinds ...string) bool { return slices.Contains(kinds, config.Kind) }
	classes := len(set.Classes)
	if err := cmp.Or(
		configtags.Need(config.Clients >= 1, "partition.clients", "%d: it must be at least 1", config.Clients),
		configtags.Need(config.Clients <= examples, "partition.clients", "%d clients for %d examples: lower "+
			"partition.clients", config.Clients, examples),
		configtags.Need(config.MinSize >= 0, "partition.min_size", "%d is negative: it must be at least 0",
			config.MinSize),
		configtags.Need(!kind.dirichlet || positive(config.Beta), "partition.beta",
			"%g: it must be above 0, such as 0.5",
			config.Beta),
		configtags.Need(!kind.domains || len(set.Domains) > 0, "partition.kind", "%s needs a set with domains, but %s "+
			"has none: use iid, pathological or dirichlet", config.Kind, set.Name),
		configtags.Need(!is("labeluni", "classes") || config.Classes >= 1 && config.Classes <= classes,
			"partition.classes",
			"%d classes per client, but the set has %d: set 1 to %d", config.Classes, classes, classes),
		configtags.Need(!is("pathological") || config.Repeat >= 0 && config.Repeat < 1, "partition.repeat",
			"%g: it must be at "+
				"least 0 and below 1, such as 0.1", config.Repeat),
		configtags.Need(!is("pachinko") || positive(config.FineBeta), "partition.fine_beta", "%g: it must be above 0, "+
			"such as 10", config.FineBeta),
		configtags.Need(!is("pachinko") || len(set.Coarse) == classes, "partition.kind", "pachinko needs a set with "+
			"superclasses, such as CIFAR-100, but %s has none: use dirichlet", set.Name),
		configtags.Need(!is("sample") || config.Share > 0 && config.Share <= 1, "partition.share",
			"%g: it must be above 0 and "+
				"at most 1, such as 0.1", config.Share),
		configtags.Need(!config.Code || kind.published != nil, "partition.code",
			"no public code is known for kind %s: "+
				"set it to false", config.Kind),
		checkLeaveOut(config, set)); err != nil || !is("pachinko") {
		return kind, err
	}

	for i, c := range set.Coarse {
		if c < 0 || c >= len(set.Superclasses) {
			return kind, configtags.KeyErrorf("partition", "class %s has superclass %d of %d", set.Classes[i], c,
				len(set.Superclasses))
		}
	}

	return kind, nil
}

// checkComplete returns an error if a client has no training or no test examples.
func checkComplete(kind Kind, clients []Client) error {
	change := "lower partition.clients"
	switch {
	case strings.HasSuffix(kind.Name, "dirichlet"):
		change += ", raise partition.beta or set partition.min_size to 2 or more"
	case kind.Name == "sample":
		change = "raise partition.share"
	case kind.dirichlet:
		change += " or raise partition.beta"
	}

	for i, c := range clients {
		what := ""
		switch {
		case len(c.Train) == 0:
			what = "training"
		case len(c.Test) == 0:
			what = "test"
		default:
			continue
		}
		return fmt.Errorf("client %d of %d has no %s example: %s", i, len(clients), what, change)
	}

	return nil
}
