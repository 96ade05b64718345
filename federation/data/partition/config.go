package partition

import "fmt"

// Config describes how examples are split among clients. The tags are the keys under `partition:`.
type Config struct {
	Kind     string   `config:"kind" help:"kind of partition, see promptfed list partitions"`
	Clients  int      `config:"clients" help:"number of clients"`
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

// LongHelp implements keys.LongHelp.
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
func (p Config) checkFits(lists []list) error {
	first, last := lists[0], lists[len(lists)-1]
	if most := min(len(first.index), len(last.index)); p.MinSize > most/p.Clients {
		return fmt.Errorf("%d clients with %d examples each do not fit in %d training and %d test examples: lower "+
			"partition.clients or partition.min_size", p.Clients, p.MinSize, len(first.index), len(last.index))
	}
	return nil
}
