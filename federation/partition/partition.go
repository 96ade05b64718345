// Package partition decides which client holds which examples of a set: by label, by domain or by both, and the few-shot
// selection inside a client.
package partition

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// Partition says how examples are handed out to clients. The tags are the keys under `partition:`.
type Config struct {
	Kind    string  `config:"kind" help:"iid, pathological, dirichlet, domain or domain-dirichlet"`
	Clients int     `config:"clients" help:"number of clients"`
	Beta    float64 `config:"beta" help:"concentration of the Dirichlet kinds: small is skewed"`
	MinSize int     `config:"min_size" help:"of the Dirichlet kinds: fewest train and test examples of a client"`
	Uncap   bool    `config:"uncap" help:"of the Dirichlet kinds: clients that have their share already may get more"`
}

// DefaultPartition is what a file or a flag changes. FedPHA's code asks for min_size 10 on CIFAR and 2 inside domains.
func Defaults() Config { return Config{Kind: "iid", Clients: 10, Beta: 0.5, MinSize: 2} }

// PartitionKind is one way to hand out examples.
type Kind struct {
	Name   string
	About  string
	Source string
	share  func(lists []list, classes int, p Config, seed uint64) ([]shares, error)
}

var kinds = []Kind{
	{"iid", "every class is dealt out evenly", "McMahan et al., AISTATS 2017", iid},
	{"pathological", "every class has one owner; clients own about classes/clients classes each",
		"the few-shot split of PromptFL, FedOTP, FedPGP and FedPHA", pathological},
	{"dirichlet", "each class is cut by proportions drawn from a Dirichlet(beta) distribution, the same for train and test",
		"Hsu et al., 2019; cap and minimum as in FedOTP and FedPHA", dirichlet},
	{"domain", "clients hold one domain each; inside a domain every class is dealt out evenly", "FedPHA, pFedDC", iid},
	{"domain-dirichlet", "clients hold one domain each; inside a domain as dirichlet", "FedPHA", dirichlet},
}

// PartitionKinds is the table of partitions, for listing.
func Kinds() []Kind { return slices.Clone(kinds) }

// Client is what one client holds: indices into the lists of the set. With split "pooled" all three index Set.Pool.
type Client struct {
	Train  []int  `json:"train"`
	Val    []int  `json:"val"`
	Test   []int  `json:"test"`
	Domain string `json:"domain"` // of the domain kinds, otherwise ""
}

// list is the part of one split that is handed out: indices into the split, and the label of every index of the split.
type list struct {
	index []int
	label []int
}

// byClass groups the indices of a list, keeping their order.
func (l list) byClass(classes int) [][]int {
	out := make([][]int, classes)
	for _, i := range l.index {
		out[l.label[i]] = append(out[l.label[i]], i)
	}
	return out
}

// shares are the indices that one client gets of every list.
type shares [][]int

// Split hands every example of s to exactly one client, as a function of p and the seed alone. Domain kinds order the
// clients by domain; a domain gets clients/domains clients, and domains drawn at random get one of the remainder each.
// A pooled set is cut 60/20/20 inside each client. A client left without training or test examples, too few classes or
// domains, and a Dirichlet draw that does not succeed within its tries are errors that name what to change.
func (p Config) Split(s *data.Set, seed uint64) ([]Client, error) {
	kind, err := p.check(s)
	if err != nil {
		return nil, err
	}
	splits := s.Splits()
	count, domains := []int{p.Clients}, []string{""}
	domain := strings.HasPrefix(p.Kind, "domain")
	if domain {
		if count, err = p.perDomain(s, seed); err != nil {
			return nil, err
		}
		domains = s.Domains
	}
	var out []Client
	for d, name := range domains {
		lists := make([]list, len(splits))
		for i, sp := range splits {
			lists[i].label = data.Labels(*sp.Examples)
			for j, e := range *sp.Examples {
				if !domain || e.Domain == d {
					lists[i].index = append(lists[i].index, j)
				}
			}
		}
		q := p
		q.Clients = count[d]
		got, err := kind.share(lists, len(s.Classes), q, data.Stream(seed, "partition/"+p.Kind, d).Uint64())
		if err != nil {
			if domain {
				err = fmt.Errorf("domain %s: %w", name, err)
			}
			return nil, fmt.Errorf("partition %s: %w", p.Kind, err)
		}
		for _, g := range got {
			c := Client{Domain: name}
			for i, sp := range splits {
				switch sp.Name {
				case "pool":
					c.cut(g[i], data.Stream(seed, "partition/pool", len(out)))
				case "train":
					c.Train = g[i]
				case "val":
					c.Val = g[i]
				case "test":
					c.Test = g[i]
				}
			}
			out = append(out, c)
		}
	}
	return out, p.complete(out)
}

// check looks at everything that does not depend on the draw.
func (p Config) check(s *data.Set) (Kind, error) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	if err := data.OneOf("partition.kind", p.Kind, names...); err != nil {
		return Kind{}, err
	}
	kind := kinds[slices.Index(names, p.Kind)]
	examples := 0
	for _, sp := range s.Splits() {
		examples += len(*sp.Examples)
		for _, e := range *sp.Examples {
			if e.Label < 0 || e.Label >= len(s.Classes) {
				return kind, fmt.Errorf("partition: %s has label %d, but the set has %d classes", e.Name(), e.Label, len(s.Classes))
			}
		}
	}
	switch {
	case p.Clients < 1:
		return kind, fmt.Errorf("partition.clients: %d: take at least 1", p.Clients)
	case p.Clients > examples:
		return kind, fmt.Errorf("partition.clients: %d clients for %d examples: lower partition.clients", p.Clients, examples)
	case p.MinSize < 0:
		return kind, fmt.Errorf("partition.min_size: %d is negative: take 0 or more", p.MinSize)
	case strings.HasSuffix(p.Kind, "dirichlet") && !(p.Beta > 0 && !math.IsInf(p.Beta, 0)):
		return kind, fmt.Errorf("partition.beta: %g: take a number above 0, such as 0.5", p.Beta)
	case strings.HasPrefix(p.Kind, "domain") && len(s.Domains) == 0:
		return kind, fmt.Errorf("partition.kind: %s needs a set with domains, %s has none: take iid, pathological or dirichlet", p.Kind, s.Name)
	}
	return kind, nil
}

// perDomain is the number of clients of every domain.
func (p Config) perDomain(s *data.Set, seed uint64) ([]int, error) {
	n := len(s.Domains)
	if p.Clients < n {
		return nil, fmt.Errorf("partition %s: %d clients for %d domains: raise partition.clients to at least %d", p.Kind, p.Clients, n, n)
	}
	count := make([]int, n)
	for i := range count {
		count[i] = p.Clients / n
	}
	for _, d := range data.Stream(seed, "partition/remainder").Perm(n)[:p.Clients%n] {
		count[d]++
	}
	return count, nil
}

// complete finds a client that could not train or could not be tested.
func (p Config) complete(clients []Client) error {
	change := "lower partition.clients"
	if strings.HasSuffix(p.Kind, "dirichlet") {
		change += ", raise partition.beta or set partition.min_size to 2 or more"
	}
	for i, c := range clients {
		for _, l := range []struct {
			what  string
			count int
		}{{"training", len(c.Train)}, {"test", len(c.Test)}} {
			if l.count == 0 {
				return fmt.Errorf("partition %s: client %d of %d has no %s example: %s", p.Kind, i, len(clients), l.what, change)
			}
		}
	}
	return nil
}
