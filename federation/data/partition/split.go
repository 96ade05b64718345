// Package partition decides which client holds which examples of a set: by label, by domain or by both, as the papers
// say or as their public code does, and the few-shot selection inside a client. docs/partitions.md has the formulas.
package partition

import (
	"fmt"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/method"
)

// Config says how examples are split among clients. The tags are the keys under `partition:`.
type Config = allocation.Config

// Client is what one client holds: indices into the lists of the set, ascending. With split "pooled" all three index
// Set.Pool.
type Client = allocation.Client

// Defaults is what a file or a flag changes. FedPHA's code asks for min_size 10 on CIFAR and 2 inside domains.
func Defaults() Config {
	return Config{Kind: "iid", Clients: 10, Beta: 0.5, MinSize: 2, Classes: 2, FineBeta: 10, Share: 0.1}
}

// Split splits the examples of s among clients, as a function of p, shots and the seed alone, and keeps shots training
// examples per client and class (0: all). Every example goes to exactly one client, but for what the kind leaves unused
// or repeats, which its About says. Domain kinds order the clients by domain; a domain gets clients/domains clients,
// and domains drawn at random get one of the remainder each. A pooled set is cut 60/20/20 inside each client. A client
// left without training or test examples, too few classes or domains, and a draw that does not succeed within its tries
// are errors that name what to change.
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

// allocator splits some lists among n clients.
type allocator func(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error)

// overall splits the set without regard to domains.
func overall(share allocator) func(*allocation.Job) ([]Client, error) {
	return func(j *allocation.Job) ([]Client, error) {
		got, err := share(j.Lists, len(j.Set.Classes), j.Config, data.Stream(j.Seed, "partition/"+j.Kind, 0).Uint64())
		return j.NewClients(got, "", 0), err
	}
}

// eachDomain splits each domain by itself.
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
			got, err := share(j.InDomain(d), len(j.Set.Classes), q, data.Stream(j.Seed, "partition/"+j.Kind,
				d).Uint64())
			if err != nil {
				return nil, fmt.Errorf("domain %s: %w", j.Set.Domains[d], err)
			}
			out = append(out, j.NewClients(got, j.Set.Domains[d], len(out))...)
		}
		return out, nil
	}
}
