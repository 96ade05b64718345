package allocation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
)

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

// Client holds the examples of one client: indices into the lists of the set, ascending. With split "pooled" all three
// index Set.Pool.
type Client struct {
	Train  []int  `json:"train"`
	Val    []int  `json:"val"`
	Test   []int  `json:"test"`
	Domain string `json:"domain"` // for kinds with domains, otherwise ""
}

// In returns the client's indices in a split of the set: train, val or test.
func (c *Client) In(split string) *[]int {
	switch split {
	case "train":
		return &c.Train
	case "val":
		return &c.Val
	}
	return &c.Test
}

// List is a part of one split: indices into the split, and the label of every index of the split.
type List struct {
	Index []int
	Label []int
}

// ByClass groups the indices of a list by class and keeps their order.
func (l List) ByClass(classes int) [][]int {
	out := make([][]int, classes)
	for _, i := range l.Index {
		out[l.Label[i]] = append(out[l.Label[i]], i)
	}
	return out
}

// Shares are the indices of one client in every list.
type Shares [][]int

// Job is one partition to compute: the configuration, and the set without the domains that are left out.
type Job struct {
	Config
	Set     *data.Set
	Seed    uint64
	Shots   int
	Domains []int  // that clients may hold
	Lists   []List // of the splits of the set: train, val if it exists, and test; or pool
}

func NewJob(p Config, s *data.Set, shots int, seed uint64) *Job {
	if p.Seed != 0 {
		seed = p.Seed
	}
	j := &Job{Config: p, Set: s, Seed: seed, Shots: shots, Domains: p.KeptDomains(s)}
	for _, sp := range s.Splits() {
		l := List{Label: data.Labels(*sp.Examples)}
		for i, e := range *sp.Examples {
			if len(p.LeaveOut) == 0 || slices.Contains(j.Domains, e.Domain) {
				l.Index = append(l.Index, i)
			}
		}
		j.Lists = append(j.Lists, l)
	}
	return j
}

// InDomain returns the part of the lists that lies in one domain.
func (j *Job) InDomain(domain int) []List {
	out := make([]List, len(j.Lists))
	for i, sp := range j.Set.Splits() {
		out[i].Label = j.Lists[i].Label
		for _, k := range j.Lists[i].Index {
			if (*sp.Examples)[k].Domain == domain {
				out[i].Index = append(out[i].Index, k)
			}
		}
	}
	return out
}

// NewClients makes clients of shares of the set's lists, and cuts a pool. The clients have the given domain, or "";
// before is the number of clients that precede them.
func (j *Job) NewClients(got []Shares, domain string, before int) []Client {
	var out []Client
	for n, g := range got {
		c := Client{Domain: domain}
		for i, sp := range j.Set.Splits() {
			if sp.Name == "pool" {
				c.cutPool(g[i], data.NewRand(j.Seed, "partition/pool", before+n))
			} else {
				*c.In(sp.Name) = g[i]
			}
		}
		out = append(out, c)
	}
	return out
}

// ClientsPerDomain returns the number of clients of every domain that is not left out.
func (j *Job) ClientsPerDomain() ([]int, error) {
	n := len(j.Domains)
	if j.Clients < n {
		return nil, fmt.Errorf("%d clients for %d domains: raise partition.clients to at least %d", j.Clients, n, n)
	}
	count := make([]int, n)
	for i := range count {
		count[i] = j.Clients / n
	}
	for _, d := range data.NewRand(j.Seed, "partition/remainder").Perm(n)[:j.Clients%n] {
		count[d]++
	}
	return count, nil
}

// KeptDomains returns the indices of the domains that are not left out; for a set without domains, only 0.
func (p Config) KeptDomains(s *data.Set) []int {
	if len(s.Domains) == 0 {
		return []int{0}
	}
	var out []int
	for d, name := range s.Domains {
		if !slices.Contains(p.LeaveOut, name) {
			out = append(out, d)
		}
	}
	return out
}

// cutPool splits the client's part of the pool into 60 % train, 20 % val and 20 % test (FedAPPR), in random order.
func (c *Client) cutPool(index []int, rng *rand.Rand) {
	index = slices.Clone(index)
	Shuffle(index, rng)
	a, b := len(index)*6/10, len(index)*8/10
	c.Train, c.Val, c.Test = index[:a:a], index[a:b:b], index[b:]
	for _, l := range [][]int{c.Train, c.Val, c.Test} {
		slices.Sort(l)
	}
}

// Of returns the client's examples of s.
func (c Client) Of(s *data.Set) (train, val, test []data.Example) {
	return data.Pick(s.PoolOr(s.Train), c.Train), data.Pick(s.PoolOr(s.Val), c.Val), data.Pick(s.PoolOr(s.Test), c.Test)
}
