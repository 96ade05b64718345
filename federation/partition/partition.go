// Package partition decides which client holds which examples of a set: by label, by domain or by both, as the papers
// say or as their public code does, and the few-shot selection inside a client. docs/partitions.md has the formulas.
package partition

import (
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/method"
)

// Config says how examples are handed out to clients. The tags are the keys under `partition:`.
type Config struct {
	Kind     string   `config:"kind" help:"one of promptfed list partitions"`
	Clients  int      `config:"clients" help:"number of clients"`
	Beta     float64  `config:"beta" help:"concentration of the kinds with a Dirichlet distribution: small is skewed"`
	MinSize  int      `config:"min_size" help:"of the Dirichlet kinds: fewest train and test examples of a client"`
	Uncap    bool     `config:"uncap" help:"of the Dirichlet kinds: clients that have their share already may get more"`
	Fill     bool     `config:"fill" help:"of the Dirichlet kinds: when no draw gives every client min_size, those with most give to those with less"`
	Classes  int      `config:"classes" help:"of classes and labeluni: classes of a client"`
	Repeat   float64  `config:"repeat" help:"of pathological: share of the classes that all clients hold, such as 0.1"`
	FineBeta float64  `config:"fine_beta" help:"of pachinko: concentration over the classes of a superclass"`
	Share    float64  `config:"share" help:"of sample: share of every list that a client holds, such as 0.1"`
	LeaveOut []string `config:"leave_out" help:"domains that no client gets"`
	Code     bool     `config:"code" help:"the public code's algorithm on the same random draws, with its peculiarities (docs/partitions.md)"`
	Seed     uint64   `config:"seed" help:"of the hand-out; 0: the experiment's, and with code what the code fixes (2023, 12345, 0)"`
}

// Defaults is what a file or a flag changes. FedPHA's code asks for min_size 10 on CIFAR and 2 inside domains.
func Defaults() Config {
	return Config{Kind: "iid", Clients: 10, Beta: 0.5, MinSize: 2, Classes: 2, FineBeta: 10, Share: 0.1}
}

// Client is what one client holds: indices into the lists of the set, ascending. With split "pooled" all three index
// Set.Pool.
type Client struct {
	Train  []int  `json:"train"`
	Val    []int  `json:"val"`
	Test   []int  `json:"test"`
	Domain string `json:"domain"` // of the domain kinds, otherwise ""
}

// In is what the client holds of a split of the set: train, val or test.
func (c *Client) In(split string) *[]int {
	switch split {
	case "train":
		return &c.Train
	case "val":
		return &c.Val
	}
	return &c.Test
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

// job is one hand-out: the configuration, and the set without what is left out.
type job struct {
	Config
	set     *data.Set
	seed    uint64
	shots   int
	domains []int  // that clients may hold
	lists   []list // of the splits of the set: train, val if there is one and test, or pool
}

// Split hands out the examples of s without few-shot selection; see Deal.
func (p Config) Split(s *data.Set, seed uint64) ([]Client, error) { return p.Deal(s, 0, seed) }

// Deal hands the examples of s to clients, as a function of p, shots and the seed alone, and keeps shots training
// examples per client and class (0: all). Every example goes to exactly one client, but for what the kind leaves unused
// or repeats, which its About says. Domain kinds order the clients by domain; a domain gets clients/domains clients,
// and domains drawn at random get one of the remainder each. A pooled set is cut 60/20/20 inside each client. A client
// left without training or test examples, too few classes or domains, and a draw that does not succeed within its tries
// are errors that name what to change.
func (p Config) Deal(s *data.Set, shots int, seed uint64) ([]Client, error) {
	kind, err := p.check(s)
	if err != nil {
		return nil, err
	}
	j := newJob(p, s, shots, seed)
	deal := kind.own
	if p.Code {
		deal = kind.code
	}
	out, err := deal(j)
	if err == nil {
		err = complete(kind, out)
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.Kind, err)
	}
	if shots > 0 && !(p.Code && kind.drawsShots && s.Pool == nil) {
		labels := j.lists[0].label
		for i := range out {
			out[i].Train = FewShot(out[i].Train, labels, shots, method.Rand(j.seed, "shots", strconv.Itoa(i)).Uint64())
		}
	}
	return out, nil
}

func newJob(p Config, s *data.Set, shots int, seed uint64) *job {
	if p.Seed != 0 {
		seed = p.Seed
	}
	j := &job{Config: p, set: s, seed: seed, shots: shots, domains: p.kept(s)}
	for _, sp := range s.Splits() {
		l := list{label: data.Labels(*sp.Examples)}
		for i, e := range *sp.Examples {
			if len(p.LeaveOut) == 0 || slices.Contains(j.domains, e.Domain) {
				l.index = append(l.index, i)
			}
		}
		j.lists = append(j.lists, l)
	}
	return j
}

// in is the part of the lists that lies in one domain.
func (j *job) in(domain int) []list {
	out := make([]list, len(j.lists))
	for i, sp := range j.set.Splits() {
		out[i].label = j.lists[i].label
		for _, k := range j.lists[i].index {
			if (*sp.Examples)[k].Domain == domain {
				out[i].index = append(out[i].index, k)
			}
		}
	}
	return out
}

// clients gives the shares their names: the lists of the set, a pool being cut. They are of one domain, or of "", and
// before clients come before them.
func (j *job) clients(got []shares, domain string, before int) []Client {
	var out []Client
	for n, g := range got {
		c := Client{Domain: domain}
		for i, sp := range j.set.Splits() {
			if sp.Name == "pool" {
				c.cut(g[i], data.Stream(j.seed, "partition/pool", before+n))
			} else {
				*c.In(sp.Name) = g[i]
			}
		}
		out = append(out, c)
	}
	return out
}

// sharer hands out some lists to n clients.
type sharer func(lists []list, classes int, p Config, seed uint64) ([]shares, error)

// whole hands out the set without regard to domains.
func whole(share sharer) func(*job) ([]Client, error) {
	return func(j *job) ([]Client, error) {
		got, err := share(j.lists, len(j.set.Classes), j.Config, data.Stream(j.seed, "partition/"+j.Kind, 0).Uint64())
		return j.clients(got, "", 0), err
	}
}

// inDomains hands out each domain by itself.
func inDomains(share sharer) func(*job) ([]Client, error) {
	return func(j *job) ([]Client, error) {
		count, err := j.perDomain()
		if err != nil {
			return nil, err
		}
		var out []Client
		for i, d := range j.domains {
			q := j.Config
			q.Clients = count[i]
			got, err := share(j.in(d), len(j.set.Classes), q, data.Stream(j.seed, "partition/"+j.Kind, d).Uint64())
			if err != nil {
				return nil, fmt.Errorf("domain %s: %w", j.set.Domains[d], err)
			}
			out = append(out, j.clients(got, j.set.Domains[d], len(out))...)
		}
		return out, nil
	}
}

// perDomain is the number of clients of every domain that is not left out.
func (j *job) perDomain() ([]int, error) {
	n := len(j.domains)
	if j.Clients < n {
		return nil, fmt.Errorf("%d clients for %d domains: raise partition.clients to at least %d", j.Clients, n, n)
	}
	count := make([]int, n)
	for i := range count {
		count[i] = j.Clients / n
	}
	for _, d := range data.Stream(j.seed, "partition/remainder").Perm(n)[:j.Clients%n] {
		count[d]++
	}
	return count, nil
}
