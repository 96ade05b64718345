package partition

import (
	"fmt"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/method"
)

type Config = allocation.Config

type Client = allocation.Client

// Defaults returns the defaults of the section. FedPHA's code uses min_size 10 on CIFAR and 2 inside domains.
func Defaults() Config {
	return Config{Kind: "iid", Clients: 10, Beta: 0.5, MinSize: 2, Classes: 2, FineBeta: 10, Share: 0.1}
}

// Split splits the examples of s among clients, as a function of p, shots and the seed alone, and keeps shots training
// examples per client and class (0: all). Every example goes to exactly one client, except those that the kind leaves
// unused or repeats, as its About says. Domain kinds order the clients by domain; a domain gets clients/domains
// clients, and the remainder goes to domains drawn at random, one each. A pooled set is cut 60/20/20 inside each
// client. Split returns an error that says what to change if a client is left without training or test examples, if
// there are too few classes or domains, or if no draw succeeds.
func Split(p Config, s *data.Set, shots int, seed uint64) ([]Client, error) {
	kind, err := check(p, s)
	if err != nil {
		return nil, err
	}
	j := allocation.NewJob(p, s, shots, seed)
	split := kind.allocate
	if p.Code {
		split = kind.published
	}
	out, err := split(j)
	if err == nil {
		err = checkComplete(kind, out)
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.Kind, err)
	}
	if shots > 0 && !(p.Code && kind.drawsShots && s.Pool == nil) {
		labels := j.Lists[0].Label
		for i := range out {
			out[i].Train = FewShot(out[i].Train, labels, shots, method.Rand(j.Seed, "shots", strconv.Itoa(i)).Uint64())
		}
	}
	return out, nil
}

// allocator splits lists among p.Clients clients.
type allocator func(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error)

// overall splits the whole set, whatever the domains.
func overall(share allocator) func(*allocation.Job) ([]Client, error) {
	return func(j *allocation.Job) ([]Client, error) {
		got, err := share(j.Lists, len(j.Set.Classes), j.Config, data.NewRand(j.Seed, "partition/"+j.Kind, 0).Uint64())
		return j.NewClients(got, "", 0), err
	}
}

// eachDomain splits each domain separately.
func eachDomain(share allocator) func(*allocation.Job) ([]Client, error) {
	return func(j *allocation.Job) ([]Client, error) {
		count, err := j.ClientsPerDomain()
		if err != nil {
			return nil, err
		}
		var out []Client
		for i, d := range j.Domains {
			q := j.Config
			q.Clients = count[i]
			got, err := share(j.InDomain(d), len(j.Set.Classes), q, data.NewRand(j.Seed, "partition/"+j.Kind,
				d).Uint64())
			if err != nil {
				return nil, fmt.Errorf("domain %s: %w", j.Set.Domains[d], err)
			}
			out = append(out, j.NewClients(got, j.Set.Domains[d], len(out))...)
		}
		return out, nil
	}
}
